//! What a task does while it holds a lock: it writes to both resources, whatever becomes of the lock meanwhile, as a
//! program does that never looks; and beside it the guard is asked, again and again, whether it is held.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tenure::Guard;
use tenure_testkit::EventKind;
use tokio::time::sleep;

use super::entry::Entry;
use super::face::Face;
use super::resources::Resources;
use super::wish::Wish;
use crate::keys::is_alone;
use crate::log::now;

/// How often the guard is asked.
const PACE: Duration = Duration::from_millis(20);

/// How long the lock is asked for once more: at once, unless it was lost.
const NESTING: Duration = Duration::from_secs(2);

/// Works under the lock. The guard is the caller's to give back.
pub(crate) async fn work(
    guard: &Guard,
    entry: &Entry,
    wish: &Wish,
    face: &Face,
    inner: Entry,
    resources: &Resources,
) -> io::Result<()> {
    let write = async {
        if is_alone(wish.mode) {
            let key = wish.key.name;
            resources.bump(key, wish.meanwhile, entry).await?;
            let missing = || io::Error::other("a grant without a token");
            resources.write(key, guard.token().ok_or_else(missing)?, entry)?;
        }
        if wish.nests {
            nest(guard, wish, face, inner).await?;
        }
        if wish.verifies {
            // What it says is seen by whoever watches the guard.
            let _ = guard.verify().await;
        }
        sleep(wish.lingers).await;
        Ok(())
    };
    tokio::select! {
        biased;
        watched = watch(guard, entry) => watched.map(|never| match never {}),
        written = write => written,
    }
}

/// Asks the guard at once and then at its pace, also after it has said that it was lost: it must go on to say so.
async fn watch(guard: &Guard, entry: &Entry) -> io::Result<Infallible> {
    let mut told = false;
    loop {
        entry.sample(guard)?;
        tokio::select! {
            biased;
            _ = guard.lost(), if !told => {
                told = true;
                entry.lost()?;
            }
            () = sleep(PACE) => {}
        }
    }
}

/// Takes the lock once more for the same owner. While it is held that is the same claim, and no attempt of its own; if it
/// was lost meanwhile it is another, and is written down as such.
async fn nest(guard: &Guard, wish: &Wish, face: &Face, other: Entry) -> io::Result<()> {
    let begun = now();
    let Ok(inner) = face.lock(Some(NESTING)).await else {
        return Ok(());
    };
    if inner.claim() != guard.claim() {
        let invoked = EventKind::Invoked {
            key: inner.key().clone(),
            owner: other.number,
            mode: inner.mode(),
        };
        other.event_at(begun, invoked)?;
        other.acquired(&inner)?;
        sleep(wish.meanwhile).await;
        other.event(EventKind::ReleaseInvoked)?;
    }
    let _ = inner.unlock().await;
    Ok(())
}
