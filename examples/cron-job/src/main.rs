//! A nightly report that must not run twice at the same time, even if several hosts start it.

#[path = "../../program.rs"]
mod program;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use std::{io, thread};

use tenure::Client;
use tokio::sync::mpsc;

const USAGE: &str = "usage: cron-job

Reads amounts from stdin, one per line, and prints a report, unless another process does. The lock store is TENURE_URL,
or a SQLite file in the temporary folder.";

/// Prints errors to stderr, which cron mails.
#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let asked_to_stop = stop::signals()?;
    let client = tenure::connect(&program::store_or_file("cron-job-locks.db")).await?;
    let outcome = tokio::select! {
        outcome = report_once(&client) => outcome.map_err(Into::into),
        signal = asked_to_stop => Err(signal.into()),
    };
    // The last step closes the client, which releases its locks. Otherwise they would stay until their leases end.
    let closed = client.close(Duration::from_secs(5)).await;
    outcome.and(closed.map_err(Into::into))
}

/// Runs the report. If another host runs it, prints that and succeeds.
async fn report_once(client: &Client) -> Result<(), tenure::Error> {
    let mutex = client.mutex("nightly-report");
    // If the lock is lost, `report` is dropped and the result is `Error::Lost`, which `main` prints.
    mutex
        .with_or_else(
            Duration::ZERO,
            async |_guard| report().await,
            async || println!("busy: the report runs elsewhere"),
        )
        .await
}

/// The job: adds up the amounts that it reads from stdin, one per line.
async fn report() {
    println!("running");
    let (send, mut lines) = mpsc::channel(1);
    // Not a tokio task: a read that waits for stdin would keep the process from ending.
    let reader = thread::Builder::new().spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines.try_for_each(|line| send.blocking_send(line))
    });
    reader.expect("a thread can be started");
    let (mut sales, mut total) = (0, 0);
    while let Some(line) = lines.recv().await {
        sales += 1;
        total += line.trim().parse().unwrap_or(0);
    }
    println!("report: {sales} sales, {total} in total");
}
