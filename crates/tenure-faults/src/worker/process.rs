//! A worker process: one client, some tasks, and a stall detector.

use std::io;
use std::time::Duration;

use tenure::{Client, Guarantee};
use tenure_testkit::Dice;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::args::{Args, PlantedBug};
use super::attempt_log::Entry;
use super::resources::Resources;
use super::task::Task;
use crate::keys::{Key, leases};
use crate::log::{ObservationKind, first_attempt, now};

/// Pause before the next attempt to connect to a store that could not be reached.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

const CLOSING: Duration = Duration::from_secs(10);

/// Interval of the stall detector, and the delay from which it logs a stall. The delay is shorter than the 100 ms
/// after which an offered lock goes to the next waiter, so each stall that costs a waiter its place is logged.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const STALL_DELAY: Duration = Duration::from_millis(50);

/// Runs the tasks of a worker until the process receives SIGTERM.
///
/// # Cancel safety
/// If the future is dropped, locks that its tasks hold may stay until their leases end.
///
/// # Errors
/// Returns an error if the log or a file cannot be used, if connecting fails with an error that is not transient, or if
/// closing fails.
pub async fn work(args: Args) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let (end, ends) = watch::channel(false);
    let plant = args.plant;
    let entry = Entry::open(&args.log(), first_attempt(args.process, 0), plant)?;
    let stalls = detect_stalls(entry.clone());
    let tasks = run_tasks(args, entry, ends);
    let terminated = async {
        term.recv().await;
        end.send_replace(true);
        std::future::pending().await
    };
    let client = tokio::select! {
        client = tasks => client?,
        error = stalls => return Err(error),
        never = terminated => return never,
    };
    if let Some(client) = client {
        if plant == Some(PlantedBug::LeaveLock) {
            return leave_lock(&client).await;
        }
        client.close(CLOSING).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Planted bug: acquires a lock with a long lease and never releases it.
async fn leave_lock(client: &Client) -> io::Result<()> {
    let mutex = client.mutex("left behind").lease(Duration::from_secs(60));
    std::mem::forget(mutex.try_lock().await.map_err(io::Error::other)?);
    Ok(())
}

/// Connects, and runs all tasks until SIGTERM. Returns `None` if SIGTERM came before the connection.
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
            leases: leases(client.profile()),
            last: entry.with_number(first - 1),
            resources: Resources::of(&args.folder, first, client.profile().offers(Guarantee::Fencing)),
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

/// Connects to the store. Tries again while the store is down.
async fn connect(url: &str) -> io::Result<Client> {
    loop {
        match tenure::connect(url).await {
            Ok(client) => return Ok(client),
            Err(error) if error.is_transient() => sleep(RETRY_PAUSE).await,
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Stall detector: logs each period in which the process did not run.
async fn detect_stalls(entry: Entry) -> io::Error {
    let mut last = now();
    loop {
        sleep(STALL_CHECK_INTERVAL).await;
        if now() - last > STALL_CHECK_INTERVAL + STALL_DELAY
            && let Err(error) = entry.note(ObservationKind::Stalled { since: last })
        {
            return error;
        }
        last = now();
    }
}
