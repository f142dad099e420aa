//! The worker processes of one client on one workload: this program, started again, or one in Java for Redisson
//! and Curator, in Go for etcd's own client.
//!
//! For each line on stdin, a process runs a round and prints the result. It ends when stdin is closed, after the
//! round that it runs.

use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_interop::Driver;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Fallible;
use crate::client::statements::Statements;
use crate::last_holder::LastHolder;
use crate::plan::{Client, Store, Workload};
use crate::site::Location;
use crate::tally::{Round, histogram};

/// The task of a worker process, passed to it in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) workload: Workload,
    pub(crate) client: Client,
    /// The store, the same for all processes of a client.
    pub(crate) location: Location,
    /// Index of this process among those of the workload.
    pub(crate) process: usize,
    /// Time for which each worker holds a lock.
    pub(crate) section: Duration,
}

impl FromStr for Work {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

pub(crate) struct Processes(Vec<Member>);

struct Member {
    /// True if the waits of this process count. If there is a lone waiter, only its waits do.
    watched: bool,
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Processes {
    pub(crate) async fn start(
        workload: Workload,
        client: Client,
        location: &Location,
        section: Duration,
    ) -> Fallible<Self> {
        LastHolder::make(&location.last_holder())?;
        if (client, location.store) == (Client::Bare, Store::Sqlite) {
            // Sets the journal mode before several processes open the file: it needs exclusive access.
            Statements::open(&location.lock_file())?;
        }
        let mut members = Vec::new();
        for process in 0..workload.tasks().len() {
            let work = Work {
                workload,
                client,
                location: location.clone(),
                process,
                section,
            };
            let command = match client {
                Client::Redisson => jvm(Driver::redisson_bench(), &work)?,
                Client::Curator => jvm(Driver::curator_bench(), &work)?,
                Client::Go => go(&work)?,
                _ => {
                    let mut command = Command::new(std::env::current_exe()?);
                    command.arg("work").arg(serde_json::to_string(&work)?);
                    command
                }
            };
            let watched = workload != Workload::LoneWaiter || workload.is_lone(process);
            members.push(Member::start(command, watched)?);
        }
        for member in &mut members {
            member.hear().await?;
        }
        Ok(Processes(members))
    }

    pub(crate) async fn round(&mut self, time: Duration) -> Fallible<Round> {
        let order = format!("{}\n", time.as_micros());
        for member in &mut self.0 {
            member.orders.write_all(order.as_bytes()).await?;
        }
        let mut all = Round::new(time);
        for member in &mut self.0 {
            let mut round = serde_json::from_str::<Round>(&member.hear().await?)?;
            if !member.watched {
                round.waits = histogram();
            }
            all.join(&round);
        }
        Ok(all)
    }

    pub(crate) async fn end(self) -> Fallible<()> {
        for Member {
            mut process, orders, ..
        } in self.0
        {
            drop(orders);
            let status = process.wait().await?;
            if !status.success() {
                return Err(format!("a benchmark process failed ({status})").into());
            }
        }
        Ok(())
    }
}

/// A worker process in Java, with the arguments that `Bench.java` describes.
fn jvm(command: Option<std::process::Command>, work: &Work) -> Fallible<Command> {
    let mut command = command.ok_or("Java is skipped by TENURE_SKIP: leave its clients out by `--client`")?;
    let kind = match work.workload {
        Workload::Many => "own",
        Workload::Readers => "readers",
        Workload::Permits => "permits",
        _ => "mutex",
    };
    pass(&mut command, work, kind);
    Ok(command.into())
}

/// A worker process in Go, with the arguments that `bench.go` describes.
fn go(work: &Work) -> Fallible<Command> {
    let mut command =
        Driver::etcd_bench().ok_or("Go is skipped by TENURE_SKIP: leave etcd's client out by `--client`")?;
    pass(&mut command, work, &work.workload.has_one_key().to_string());
    Ok(command.into())
}

/// Passes its work to a process in another language.
fn pass(command: &mut std::process::Command, work: &Work, kind: &str) {
    let tasks = work.workload.tasks();
    let first: u32 = tasks[..work.process].iter().sum();
    let last_holder = match tasks.len() {
        1 => "-".into(),
        _ => work.location.last_holder(),
    };
    command.args([
        &work.location.url,
        kind,
        &tasks[work.process].to_string(),
        &first.to_string(),
    ]);
    command.arg(work.section.as_micros().to_string()).arg(last_holder);
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
        line.ok_or_else(|| "a benchmark process ended early: its error is printed above".into())
    }
}
