//! `tenure watch`: prints a line for each change, until it is interrupted.

use std::time::{Duration, SystemTime};

use tenure::{Change, Changes};

use super::inspect::status;
use super::store::{ChosenStore, disconnect};
use crate::args::{Global, Watch};
use crate::messages::Failure;
use crate::output::{self, ChangeEvent, Reader, TimedChange};

/// Interval of the checks whether stdout still has a reader.
const READER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Prints changes until a signal comes, or stdout has no reader.
pub(super) async fn watch(global: &Global, watch: &Watch) -> Result<u8, Failure> {
    #[cfg(unix)]
    let mut inbox = super::signals::listen()?;
    #[cfg(unix)]
    let interrupted = super::signals::termination_signal(&mut inbox);
    #[cfg(not(unix))]
    let interrupted = tokio::signal::ctrl_c();
    tokio::select! {
        biased;
        _ = interrupted => Ok(0),
        done = follow(global, watch) => done,
    }
}

async fn follow(global: &Global, watch: &Watch) -> Result<u8, Failure> {
    // Connecting creates a missing lock file. The other inspecting verbs use an empty store in its place, but then
    // `watch` would not see a file that another process creates later.
    let client = ChosenStore::of(global)?.connect_to_inspect().await?;
    let mut changes = client.watch(watch.prefix.as_deref().unwrap_or_default());
    let done = print_all(&mut changes, global.json).await;
    disconnect(&client).await;
    done.map(|()| 0)
}

/// Prints changes until stdout has no reader.
async fn print_all(changes: &mut Changes, json: bool) -> Result<(), Failure> {
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = tokio::time::sleep(READER_CHECK_INTERVAL) => match output::reader() {
                Reader::Reads | Reader::Behind => continue,
                Reader::Gone => return Ok(()),
            },
        };
        let change = change.map_err(|error| Failure::of("cannot watch the locks", &error))?;
        let Some(seen) = seen(change) else { continue };
        let seen = TimedChange::at(SystemTime::now(), seen);
        let line = if json {
            output::object(&seen)
        } else {
            output::change(&seen).into_bytes()
        };
        if output::write(&line)? == Reader::Gone {
            return Ok(());
        }
    }
}

/// Converts a change to the event that is printed, as text or JSON. Returns `None` for a kind of change that this
/// command does not know.
fn seen(change: Change) -> Option<ChangeEvent> {
    Some(match change {
        Change::Held(of) => ChangeEvent::Held(status(&of)),
        Change::Freed(of) => ChangeEvent::Freed(status(&of)),
        Change::Holders(of) => ChangeEvent::Holders(status(&of)),
        Change::Waiters(of) => ChangeEvent::Waiters(status(&of)),
        Change::Unavailable(error) => ChangeEvent::Unavailable {
            message: Failure::of("the store does not answer", &error).to_string(),
        },
        Change::Available => ChangeEvent::Available,
        _ => return None,
    })
}
