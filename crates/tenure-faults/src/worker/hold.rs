//! What a task does while it holds a lock. An exclusive holder writes to the key's counter and register without
//! checking whether it still holds the lock, like a careless program. Meanwhile each holder asks its guard every 20 ms
//! whether the lock is held.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tenure::Guard;
use tenure_testkit::EventKind;
use tokio::time::sleep;

use super::attempt_log::Entry;
use super::lock::AnyLock;
use super::plan::LockPlan;
use super::resources::Resources;
use crate::keys::is_alone;
use crate::log::now;

/// Interval at which a task asks whether its lock is held.
const PACE: Duration = Duration::from_millis(20);

/// Time limit for acquiring a lock that the same owner holds. The call returns at once unless the lock was lost.
const NESTING: Duration = Duration::from_secs(2);

/// Does what `plan` says under the lock: writes, acquires the lock again, verifies the guard. The caller releases the
/// guard.
pub(crate) async fn work(
    guard: &Guard,
    entry: &Entry,
    plan: &LockPlan,
    lock: &AnyLock,
    inner: Entry,
    resources: &Resources,
) -> io::Result<()> {
    let write = async {
        if is_alone(plan.mode) {
            let key = plan.key.name;
            resources.bump(key, plan.write_delay, entry).await?;
            match guard.token() {
                Some(token) => resources.write(key, token, entry)?,
                None if resources.has_tokens => return Err(io::Error::other("a grant without a token")),
                None => {}
            }
        }
        if plan.nests {
            nest(guard, plan, lock, inner).await?;
        }
        if plan.verifies {
            // The result is not needed: if the lock was lost, `watch` logs that.
            let _ = guard.verify().await;
        }
        sleep(plan.extra_hold).await;
        Ok(())
    };
    tokio::select! {
        biased;
        watched = watch(guard, entry) => watched.map(|never| match never {}),
        written = write => written,
    }
}

/// Asks the guard every 20 ms whether the lock is held, and logs the answers. Continues after a loss, to show that the
/// guard stays lost.
async fn watch(guard: &Guard, entry: &Entry) -> io::Result<Infallible> {
    let mut loss_logged = false;
    loop {
        entry.sample(guard)?;
        tokio::select! {
            biased;
            _ = guard.lost(), if !loss_logged => {
                loss_logged = true;
                entry.lost()?;
            }
            () = sleep(PACE) => {}
        }
    }
}

/// Acquires the lock again for the same owner. While the lock is held, the second guard has the same claim, and no
/// attempt is logged. If the lock was lost, the second guard has another claim, which is logged as an attempt.
async fn nest(guard: &Guard, plan: &LockPlan, lock: &AnyLock, other: Entry) -> io::Result<()> {
    let begun = now();
    let Ok(inner) = lock.lock(Some(NESTING)).await else {
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
        sleep(plan.write_delay).await;
        other.event(EventKind::ReleaseInvoked)?;
    }
    let _ = inner.unlock().await;
    Ok(())
}
