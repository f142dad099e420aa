//! Workers in several processes: re-executions of this program, which begin a round when told to and say how it went.
//! They end when their stdin does, and so never outlive whoever started them by more than a round.

use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Fallible;
use crate::baton::Baton;
use crate::cli::Work;
use crate::crew::{Crew, Soon, hire_tasks};
use crate::plan::{self, Client, Shape, Store};
use crate::tally::{Round, Told};
use crate::tasks::{Keys, Team};

/// The file within a crew's folder that says who held the key last.
const BATON: &str = "baton";

pub(crate) struct Processes(Vec<Member>);

struct Member {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    pub(crate) async fn start(
        shape: Shape,
        store: Store,
        client: Client,
        folder: &Path,
        section: Duration,
    ) -> Fallible<Self> {
        Baton::make(&folder.join(BATON))?;
        let mut members = Vec::new();
        for number in 0..shape.processes {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("work").arg("--folder").arg(folder);
            command.args(["--store", &plan::name(store), "--client", &plan::name(client)]);
            command.args(["--tasks", &shape.tasks.to_string()]);
            command.args(["--first", &(number * shape.tasks).to_string()]);
            command.args(["--section-us", &section.as_micros().to_string()]);
            members.push(Member::start(command)?);
        }
        for member in &mut members {
            member.hear().await?;
        }
        Ok(Processes(members))
    }

    async fn run(&mut self, time: Duration) -> Fallible<Round> {
        let order = format!("{}\n", time.as_micros());
        for member in &mut self.0 {
            member.orders.write_all(order.as_bytes()).await?;
        }
        let mut all: Option<Round> = None;
        for member in &mut self.0 {
            let round = Round::from(serde_json::from_str::<Told>(&member.hear().await?)?);
            match &mut all {
                Some(all) => all.join(round),
                none => *none = Some(round),
            }
        }
        all.ok_or_else(|| "a crew has at least one process".into())
    }

    async fn end(self) -> Fallible<()> {
        for Member {
            mut process, orders, ..
        } in self.0
        {
            drop(orders);
            let status = process.wait().await?;
            if !status.success() {
                return Err(format!("a process of the crew failed ({status})").into());
            }
        }
        Ok(())
    }
}

impl Member {
    fn start(mut command: Command) -> Fallible<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let orders = process.stdin.take().ok_or("a process has no stdin")?;
        let answers = process.stdout.take().ok_or("a process has no stdout")?;
        Ok(Member {
            process,
            orders,
            answers: BufReader::new(answers).lines(),
        })
    }

    async fn hear(&mut self) -> Fallible<String> {
        let line = self.answers.next_line().await?;
        line.ok_or_else(|| "a process of the crew ended early: it said why above".into())
    }
}

impl Crew for Processes {
    fn round(&mut self, time: Duration) -> Soon<'_, Round> {
        Box::pin(self.run(time))
    }

    fn dismiss(self: Box<Self>) -> Soon<'static, ()> {
        Box::pin(self.end())
    }
}

/// The hidden verb: one process of a crew.
pub(crate) fn work(args: Work) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let team = Team {
        first: args.first,
        count: args.tasks,
        keys: Keys::One(Arc::new(Baton::open(&args.folder.join(BATON))?)),
        section: Duration::from_micros(args.section_us),
    };
    let mut crew = runtime.block_on(hire_tasks(args.store, args.client, &args.folder, &team))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_micros(line?.parse()?);
        let round = runtime.block_on(crew.round(time))?;
        println!("{}", serde_json::to_string(&Told::from(&round))?);
    }
    runtime.block_on(crew.dismiss())
}
