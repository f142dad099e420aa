//! `tenure watch`: a line for each change, until somebody has seen enough.

use std::time::Duration;

use tenure::{Change, Changes};

use super::look::status;
use super::store::{Chosen, leave};
use crate::args::{Global, Watch};
use crate::output::{self, Reader, Seen};
use crate::words::Failure;

/// How often it is checked that somebody still reads.
const LOOK_UP: Duration = Duration::from_secs(1);

/// Prints changes until it is interrupted, or nobody reads them.
pub(super) async fn watch(global: &Global, watch: &Watch) -> Result<u8, Failure> {
    #[cfg(unix)]
    let mut inbox = super::signals::listen()?;
    #[cfg(unix)]
    let interrupted = super::signals::order_to_go(&mut inbox);
    #[cfg(not(unix))]
    let interrupted = tokio::signal::ctrl_c();
    tokio::select! {
        biased;
        _ = interrupted => Ok(0),
        done = follow(global, watch) => done,
    }
}

async fn follow(global: &Global, watch: &Watch) -> Result<u8, Failure> {
    // A file that is made later would not be seen: it is made here.
    let client = Chosen::of(global)?.connect(None).await?;
    let mut changes = client.watch(watch.prefix.as_deref().unwrap_or_default());
    let done = print_all(&mut changes, global.json).await;
    leave(&client).await;
    done.map(|()| 0)
}

/// Prints changes until nobody reads them.
async fn print_all(changes: &mut Changes, json: bool) -> Result<(), Failure> {
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            () = tokio::time::sleep(LOOK_UP) => match output::reader() {
                Reader::Reads => continue,
                Reader::Gone => return Ok(()),
            },
        };
        let change = change.map_err(|error| Failure::of("cannot watch the locks", &error))?;
        let Some(seen) = seen(change) else { continue };
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

/// A change as programs know it. None of a kind that this command does not know.
fn seen(change: Change) -> Option<Seen> {
    Some(match change {
        Change::Held(of) => Seen::Held(status(&of)),
        Change::Freed(of) => Seen::Freed(status(&of)),
        Change::Holders(of) => Seen::Holders(status(&of)),
        Change::Waiters(of) => Seen::Waiters(status(&of)),
        Change::Unavailable(error) => Seen::Unavailable {
            message: Failure::of("the store does not answer", &error).to_string(),
        },
        Change::Available => Seen::Available,
        _ => return None,
    })
}
