//! Liveness checks after the faults: every task gets a lock, locks of dead holders are granted again, and the workers
//! leave nothing in the store.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use tenure::Client;
use tenure::inspect::Query;

use super::workers::{Workers, within};
use crate::judge::{Finding, Law};
use crate::keys::longest_stay;
use crate::log::now;
use crate::store::Store;

/// Time that a takeover or an expiry may take after the store stops keeping the claim: one poll, and delays on a busy
/// machine.
const GRACE: Duration = Duration::from_secs(5);

/// Time limit for waiting until a worker holds a lock. All tasks of the worker may wait for
/// locks of other workers, each task for up to a lease.
const HOLDER_TIME_LIMIT: Duration = Duration::from_secs(20);

/// Checks law L2: each task of each worker gets a lock within the limit.
pub(crate) async fn every_task_gets_a_lock(
    workers: &mut Workers,
    tasks: u64,
    limit: Duration,
) -> io::Result<Option<Finding>> {
    let since = now();
    let mut without = Vec::new();
    let all = within(limit, async || {
        without.clear();
        for seat in 0..workers.seats() {
            let granted = workers.read_log(seat)?.tasks_granted_since(since);
            if granted < tasks {
                without.push(format!("{} of seat {seat}", tasks - granted));
            }
        }
        Ok(without.is_empty().then_some(()))
    });
    if all.await?.is_some() {
        return Ok(None);
    }
    let tasks = without.join(", ");
    let what = format!("no lock for {limit:?} without faults: tasks {tasks}");
    Ok(Some(Finding { law: Law::L2, what }))
}

/// Checks law L1: kills and replaces a worker that holds a lock, and waits until another task is granted the lock.
/// Adds the time from the death to the grant to `takeovers`.
pub(crate) async fn a_dead_holder_is_succeeded(
    workers: &mut Workers,
    seat: usize,
    longest_stay: Duration,
    takeovers: &mut Vec<Duration>,
) -> io::Result<Option<Finding>> {
    let killed = within(HOLDER_TIME_LIMIT, async || {
        if workers.read_log(seat)?.holds().is_none() {
            return Ok(None);
        }
        let dead = workers.kill(seat)?;
        // The worker may have released the lock before it died, so its log is read again.
        let held = workers.read_log(seat)?.holds().cloned();
        workers.replace(seat)?;
        Ok(held.map(|key| (key, dead)))
    });
    let Some((key, dead)) = killed.await? else {
        let what = format!("seat {seat} held no lock for {HOLDER_TIME_LIMIT:?} without faults");
        return Ok(Some(Finding { law: Law::L2, what }));
    };
    let limit = longest_stay + GRACE;
    let granted = within(limit, async || {
        let granted = workers.any_log(|log| log.granted_since(&key, dead))?;
        Ok(granted.then(|| now() - dead))
    });
    let Some(time) = granted.await? else {
        let what = format!("{key} was not taken over within {limit:?} of its holder's death");
        return Ok(Some(Finding { law: Law::L1, what }));
    };
    takeovers.push(time);
    Ok(None)
}

/// Checks law L4: after all leases have ended, the store shows no holder or waiter, and all its keys except token
/// counters have a time to live.
pub(crate) async fn nothing_is_left(client: &Client, store: &mut Store) -> io::Result<Option<Finding>> {
    let mut what = String::new();
    let emptied = within(longest_stay(client.profile()) + GRACE, async || {
        let all = Query::Prefix {
            prefix: "".into(),
            after: None,
            limit: NonZeroU32::MAX,
        };
        what = match client.inspect(all).await {
            Ok(seen) if seen.items.is_empty() => return Ok(Some(())),
            Ok(seen) => format!("left in the store: {:?}", seen.items),
            Err(error) => format!("the store cannot be inspected: {error}"),
        };
        Ok(None)
    });
    if emptied.await?.is_some() {
        let kept = store.kept_for_ever()?;
        if kept.is_empty() {
            return Ok(None);
        }
        what = format!("kept in the store for ever: {}", kept.join(", "));
    }
    Ok(Some(Finding { law: Law::L4, what }))
}
