//! Workers in several processes: re-executions of this program, which begin a round when told to and say how it went.
//! They end when their stdin does, and so never outlive whoever started them by more than a round.

use std::io::BufRead;
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Fallible;
use crate::baton::Baton;
use crate::crew::{Crew, Soon, hire_tasks};
use crate::plan::{Client, Workload};
use crate::site::Place;
use crate::tally::{Round, histogram};
use crate::tasks::{Keys, Team};

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    client: Client,
    /// The same for all processes of a crew.
    place: Place,
    tasks: u32,
    /// Number of the first worker in this process.
    first: u32,
    section: Duration,
    rest: Duration,
}

impl FromStr for Work {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

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
            let work = Work {
                client,
                place: place.clone(),
                tasks,
                first,
                section,
                rest,
            };
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("work").arg(serde_json::to_string(&work)?);
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
            let mut round = serde_json::from_str::<Round>(&member.hear().await?)?;
            if !member.watched {
                round.waits = histogram();
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
pub(crate) fn work(work: &Work) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let team = Team {
        first: work.first,
        count: work.tasks,
        keys: Keys::One(Arc::new(Baton::open(&work.place.folder.join(BATON))?)),
        section: work.section,
        rest: work.rest,
    };
    let mut crew = runtime.block_on(hire_tasks(work.client, &work.place, &team))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_micros(line?.parse()?);
        let round = runtime.block_on(crew.round(time))?;
        println!("{}", serde_json::to_string(&round)?);
    }
    runtime.block_on(crew.dismiss())
}
