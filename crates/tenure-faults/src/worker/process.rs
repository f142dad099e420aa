//! A worker process from its start to its end: one client, some tasks, and a pulse.

use std::io;
use std::time::Duration;

use tenure::{Client, Settings};
use tenure_testkit::Dice;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::args::{self, Args};
use super::holding::Resources;
use super::task::Task;
use crate::attempts;
use crate::journal::{Journal, now};
use crate::keys::Key;
use crate::line::Noted;
use crate::plant::Plant;
use crate::register::Writer;

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
/// What it cannot work without: its log, its register, a store that answers what a store may answer.
pub async fn work(args: Args) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let journal = Journal::open(&args.log())?;
    let (end, ends) = watch::channel(false);
    let myself = attempts::first(args.process, 0);
    let plant = args.plant;
    let tasks = run_tasks(args, journal.clone(), ends);
    let pulse = pulse(&journal, myself);
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
async fn run_tasks(
    args: Args,
    journal: Journal,
    mut ends: watch::Receiver<bool>,
) -> io::Result<Option<Client>> {
    let client = tokio::select! {
        client = connect(&args.url) => client?,
        _ = ends.wait_for(|ends| *ends) => return Ok(None),
    };
    let counters = args::counters(&args.folder);
    let mut tasks = JoinSet::new();
    for number in 0..args.tasks {
        let next = attempts::first(args.process, number);
        let task = Task {
            owner: client.owner(format!("task {number}")),
            client: client.clone(),
            keys: Key::served(client.profile()),
            journal: journal.clone(),
            resources: Resources {
                counters: counters.clone(),
                scratch: counters.join(format!("scratch-{next}")),
                register: Writer::connect(&args::register(&args.folder)).await?,
            },
            dice: Dice::new(args.seed ^ next),
            next,
            plant: args.plant,
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
        match tenure::connect_with(url, Settings::default()).await {
            Ok(client) => return Ok(client),
            Err(error) if error.is_weather() => sleep(REST).await,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Notes when the process stood still.
async fn pulse(journal: &Journal, myself: u64) -> io::Error {
    let mut last = now();
    loop {
        sleep(BEAT).await;
        let beat = now();
        if beat - last > BEAT + LATE
            && let Err(error) = journal.note(beat, myself, Noted::Stalled { since: last })
        {
            return error;
        }
        last = beat;
    }
}
