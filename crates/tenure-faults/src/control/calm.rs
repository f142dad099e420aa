//! After the faults: everybody gets a lock, the dead are succeeded, and in the end nothing is left.

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use tenure::{Client, LockStatus, Query};
use tokio::time::sleep;

use super::crew::Crew;
use crate::journal::now;
use crate::judge::{Finding, Law};
use crate::keys::LONGEST_LEASE;

/// How often a log, or the store, is looked at while something is waited for.
const PACE: Duration = Duration::from_millis(10);

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
) -> io::Result<Result<(), Finding>> {
    let since = now();
    loop {
        let mut without = Vec::new();
        for seat in 0..crew.seats() {
            let granted = crew.look(seat)?.tasks_granted_since(since);
            if granted < tasks {
                without.push(format!("{} of seat {seat}", tasks - granted));
            }
        }
        if without.is_empty() {
            return Ok(Ok(()));
        }
        if now() > since + limit {
            let what = format!(
                "no lock for {limit:?} in calm weather: tasks {}",
                without.join(", ")
            );
            return Ok(Err(Finding { law: Law::L2, what }));
        }
        sleep(PACE).await;
    }
}

/// L1: a worker is killed while it holds a lock; how long it takes until another is granted that.
pub(crate) async fn somebody_takes_over(
    crew: &mut Crew,
    seat: usize,
) -> io::Result<Result<Duration, Finding>> {
    let since = now();
    while now() < since + LOOKING {
        if crew.look(seat)?.holds().is_none() {
            sleep(PACE).await;
            continue;
        }
        let dead = crew.kill(seat)?;
        let held = crew.look(seat)?.holds().cloned();
        crew.fill(seat)?;
        let Some(key) = held else { continue };
        loop {
            let granted = crew.latest_grant(&key)?;
            let limit = LONGEST_LEASE + GRACE;
            if granted > dead {
                return Ok(Ok(granted - dead));
            }
            if now() > dead + limit {
                let what = format!("{key} was not taken over within {limit:?} of its holder's death");
                return Ok(Err(Finding { law: Law::L1, what }));
            }
            sleep(PACE).await;
        }
    }
    let what = format!("seat {seat} was never seen to hold a lock for {LOOKING:?} in calm weather");
    Ok(Err(Finding { law: Law::L2, what }))
}

/// L4: the store shows neither holders nor waiters, once the dead ones' leases have ended.
pub(crate) async fn nothing_is_left(client: &Client) -> Result<(), Finding> {
    let end = now() + LONGEST_LEASE + GRACE;
    loop {
        let seen = look(client).await;
        if seen.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(());
        }
        if now() > end {
            let what = match seen {
                Ok(left) => format!("left in the store: {left:?}"),
                Err(error) => format!("the store cannot be looked at: {error}"),
            };
            return Err(Finding { law: Law::L4, what });
        }
        sleep(PACE).await;
    }
}

async fn look(client: &Client) -> Result<Vec<LockStatus>, tenure::Error> {
    let all = Query::Prefix {
        prefix: "".into(),
        after: None,
        limit: NonZeroU32::MAX,
    };
    Ok(client.inspect(all).await?.items)
}
