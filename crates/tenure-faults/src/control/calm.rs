//! After the faults: everybody gets a lock, the dead are succeeded, and in the end nothing is left.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use tenure::Client;
use tenure::inspect::Query;

use super::crew::{Crew, within};
use crate::judge::{Finding, Law};
use crate::keys::LONGEST_LEASE;
use crate::log::now;
use crate::store::Store;

/// What a takeover, or the end of a dead claim, may take beyond the lease: a poll, and a machine that does much else.
const GRACE: Duration = Duration::from_secs(5);

/// For how long it is tried to kill a worker that holds a lock. All its tasks may wait meanwhile behind others that keep
/// theirs for as long as a lease.
const LOOKING: Duration = Duration::from_secs(20);

/// L2: each task of each worker is granted a lock within the limit.
pub(crate) async fn everybody_gets_a_lock(
    crew: &mut Crew,
    tasks: u64,
    limit: Duration,
) -> io::Result<Option<Finding>> {
    let since = now();
    let mut without = Vec::new();
    let all = within(limit, async || {
        without.clear();
        for seat in 0..crew.seats() {
            let granted = crew.look(seat)?.tasks_granted_since(since);
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
    let what = format!("no lock for {limit:?} in calm weather: tasks {tasks}");
    Ok(Some(Finding { law: Law::L2, what }))
}

/// L1: a worker is killed while it holds a lock, and another is granted that; how long it takes is added to `takeovers`.
pub(crate) async fn somebody_takes_over(
    crew: &mut Crew,
    seat: usize,
    takeovers: &mut Vec<Duration>,
) -> io::Result<Option<Finding>> {
    let killed = within(LOOKING, async || {
        if crew.look(seat)?.holds().is_none() {
            return Ok(None);
        }
        let dead = crew.kill(seat)?;
        // What it wrote last counts.
        let held = crew.look(seat)?.holds().cloned();
        crew.fill(seat)?;
        Ok(held.map(|key| (key, dead)))
    });
    let Some((key, dead)) = killed.await? else {
        let what = format!("seat {seat} was never seen to hold a lock for {LOOKING:?} in calm weather");
        return Ok(Some(Finding { law: Law::L2, what }));
    };
    let limit = LONGEST_LEASE + GRACE;
    let granted = within(limit, async || {
        let granted = crew.shows(|sight| sight.granted_since(&key, dead))?;
        Ok(granted.then(|| now() - dead))
    });
    let Some(time) = granted.await? else {
        let what = format!("{key} was not taken over within {limit:?} of its holder's death");
        return Ok(Some(Finding { law: Law::L1, what }));
    };
    takeovers.push(time);
    Ok(None)
}

/// L4: the store shows neither holders nor waiters, once the dead ones' leases have ended, and then keeps nothing for ever.
pub(crate) async fn nothing_is_left(client: &Client, store: &Store) -> io::Result<Option<Finding>> {
    let mut what = String::new();
    let nothing = within(LONGEST_LEASE + GRACE, async || {
        let all = Query::Prefix {
            prefix: "".into(),
            after: None,
            limit: NonZeroU32::MAX,
        };
        what = match client.inspect(all).await {
            Ok(seen) if seen.items.is_empty() => return Ok(Some(())),
            Ok(seen) => format!("left in the store: {:?}", seen.items),
            Err(error) => format!("the store cannot be looked at: {error}"),
        };
        Ok(None)
    });
    if nothing.await?.is_some() {
        let kept = store.kept_for_ever()?;
        if kept.is_empty() {
            return Ok(None);
        }
        what = format!("kept in the store for ever: {}", kept.join(", "));
    }
    Ok(Some(Finding { law: Law::L4, what }))
}
