//! Workers in several processes: re-executions of this program, which begin a round when told to and say how it went.
//! They end when their stdin does, and so never outlive whoever started them by more than a round.

use std::io::BufRead;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Fallible;
use crate::baton::Baton;
use crate::cli::Work;
use crate::crew::{Crew, Soon, hire_tasks};
use crate::plan::{self, Client, Workload};
use crate::site::Place;
use crate::tally::{Round, Told, Waits};
use crate::tasks::{Keys, Team};

/// The file within a crew's folder that says who held the key last.
const BATON: &str = "baton";

/// How long the lone waiter wants nothing after each of its turns, so that it comes whenever it comes.
const REST: Duration = Duration::from_millis(5);

pub(crate) struct Processes(Vec<Member>);

struct Member {
    /// Whether its waits count: where one waits alone, only that one's do.
    watched: bool,
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    pub(crate) async fn start(
        workload: Workload,
        client: Client,
        place: &Place,
        section: Duration,
    ) -> Fallible<Self> {
        Baton::make(&place.folder.join(BATON))?;
        let mut members = Vec::new();
        let mut first = 0;
        for &tasks in workload.shape().tasks {
            let alone = workload == Workload::LoneWaiter && tasks == 1;
            let rest = if alone { REST } else { Duration::ZERO };
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("work").arg("--folder").arg(&place.folder);
            command.args(["--store", &plan::name(place.store), "--url", &place.url]);
            command.args(["--workload", &plan::name(workload)]);
            command.args(["--client", &plan::name(client)]);
            command.args(["--tasks", &tasks.to_string()]);
            command.args(["--first", &first.to_string()]);
            command.args(["--section-us", &section.as_micros().to_string()]);
            command.args(["--rest-us", &rest.as_micros().to_string()]);
            members.push(Member::start(command, alone || workload != Workload::LoneWaiter)?);
            first += tasks;
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
            let mut round = Round::from(serde_json::from_str::<Told>(&member.hear().await?)?);
            if !member.watched {
                round.waits = Waits::new();
            }
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
    fn start(mut command: Command, watched: bool) -> Fallible<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let orders = process.stdin.take().ok_or("a process has no stdin")?;
        let answers = process.stdout.take().ok_or("a process has no stdout")?;
        Ok(Member {
            watched,
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
        rest: Duration::from_micros(args.rest_us),
    };
    let place = Place {
        store: args.store,
        url: args.url,
        folder: args.folder,
    };
    let mut crew = runtime.block_on(hire_tasks(args.workload, args.client, &place, &team))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_micros(line?.parse()?);
        let round = runtime.block_on(crew.round(time))?;
        println!("{}", serde_json::to_string(&Told::from(&round))?);
    }
    runtime.block_on(crew.dismiss())
}
