//! A worker process from its start to its end: one client, some tasks, and a pulse.

use std::io;
use std::time::Duration;

use tenure::Client;
use tenure_testkit::Dice;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::args::{Args, Plant};
use super::entry::Entry;
use super::resources::Resources;
use super::task::Task;
use crate::keys::Key;
use crate::log::{Noted, first_attempt, now};

/// How long it rests before it asks a store again that it could not reach.
const REST: Duration = Duration::from_millis(50);

/// How long it may take to give everything back at its end.
const CLOSING: Duration = Duration::from_secs(10);

/// The pulse of the process, and how late a beat must be to be written down: sooner than an offered lock goes on to the
/// next waiter, so that whoever loses a place to a busy machine is known.
const BEAT: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_millis(50);

/// Works until it gets the signal TERM.
///
/// # Cancel safety
/// Dropping the future leaves the locks to their leases.
///
/// # Errors
/// What it cannot work without: its log, its files, a store that answers what a store may answer.
pub async fn work(args: Args) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let (end, ends) = watch::channel(false);
    let plant = args.plant;
    let entry = Entry::open(&args.log(), first_attempt(args.process, 0), plant)?;
    let pulse = pulse(entry.clone());
    let tasks = run_tasks(args, entry, ends);
    let told = async {
        term.recv().await;
        end.send_replace(true);
        std::future::pending().await
    };
    let client = tokio::select! {
        client = tasks => client?,
        error = pulse => return Err(error),
        never = told => return never,
    };
    if let Some(client) = client {
        if plant == Some(Plant::Litter) {
            return litter(&client).await;
        }
        client.close(CLOSING).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// A planted bug: a lock that is held for long, and nobody gives it back.
async fn litter(client: &Client) -> io::Result<()> {
    let mutex = client.mutex("litter").lease(Duration::from_secs(60));
    std::mem::forget(mutex.try_lock().await.map_err(io::Error::other)?);
    Ok(())
}

/// All tasks, to their end; the client, if the store answered before.
async fn run_tasks(args: Args, entry: Entry, mut ends: watch::Receiver<bool>) -> io::Result<Option<Client>> {
    let client = tokio::select! {
        client = connect(&args.url) => client?,
        _ = ends.wait_for(|ends| *ends) => return Ok(None),
    };
    let mut tasks = JoinSet::new();
    for number in 0..args.tasks {
        let first = first_attempt(args.process, number);
        let task = Task {
            owner: client.owner(format!("task {number}")),
            client: client.clone(),
            keys: Key::served(client.profile()),
            last: entry.with_number(first - 1),
            resources: Resources::of(&args.folder, first),
            dice: Dice::new(args.seed ^ first),
            ends: ends.clone(),
        };
        tasks.spawn(task.run());
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(Some(client))
}

/// Until the store answers: it may be down when a worker begins.
async fn connect(url: &str) -> io::Result<Client> {
    loop {
        match tenure::connect(url).await {
            Ok(client) => return Ok(client),
            Err(error) if error.is_transient() => sleep(REST).await,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Notes when the process stood still.
async fn pulse(entry: Entry) -> io::Error {
    let mut last = now();
    loop {
        sleep(BEAT).await;
        if now() - last > BEAT + LATE
            && let Err(error) = entry.note(Noted::Stalled { since: last })
        {
            return error;
        }
        last = now();
    }
}
