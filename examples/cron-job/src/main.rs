//! A nightly report that must not run twice at the same time, whichever hosts start it.

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

/// Cron mails what is written to stderr.
#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let asked_to_stop = stop::signals()?;
    let client = tenure::connect(&program::store_or_file("cron-job-locks.db")).await?;
    let outcome = tokio::select! {
        outcome = report_once(&client) => outcome.map_err(Into::into),
        signal = asked_to_stop => Err(signal.into()),
    };
    // Last: what is still held is given back before the process ends, not when its lease does.
    let closed = client.close(Duration::from_secs(5)).await;
    outcome.and(closed.map_err(Into::into))
}

/// Another host that is at it is fine for cron: nothing is written to stderr, and the exit code is 0.
async fn report_once(client: &Client) -> Result<(), tenure::Error> {
    let mutex = client.mutex("nightly-report");
    // Once the lock is lost, `report` is dropped where it stands and the answer is `Error::Lost`: cron mails it.
    mutex
        .with_or_else(
            Duration::ZERO,
            async |_guard| report().await,
            async || println!("busy: the report runs elsewhere"),
        )
        .await
}

/// The job itself: adds up the amounts that it reads, one a line.
async fn report() {
    println!("running");
    let (send, mut lines) = mpsc::channel(1);
    // No task of tokio's, which would keep the process from ending while a read waits.
    thread::spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        lines.try_for_each(|line| send.blocking_send(line))
    });
    let (mut sales, mut total) = (0, 0);
    while let Some(line) = lines.recv().await {
        sales += 1;
        total += line.trim().parse().unwrap_or(0);
    }
    println!("report: {sales} sales, {total} in total");
}
