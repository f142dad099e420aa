//! Workers of one process: tasks that take turns on their keys until a round has ended.
//! Not here: workers of several processes (`processes`).

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Fallible;
use crate::baton::Baton;
use crate::client::{Lock, Locker};
use crate::crew::{Crew, Soon};
use crate::tally::{Round, Tally};

/// How long after its round a wait may last. It is then given up, and counts for as long as it lasted: some peers let
/// those who wait poll at the same moments, and take seconds to serve the last of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// The workers of one client in this process.
pub(crate) struct Tasks<L: Locker> {
    locker: L,
    seats: Vec<Arc<Seat<L::Lock>>>,
    section: Duration,
    rest: Duration,
}

/// One worker's place, from round to round.
struct Seat<L> {
    worker: u64,
    lock: L,
    baton: Arc<Baton>,
}

/// The workers of one process, and what they are to do.
pub(crate) struct Team {
    /// The number of the first of them.
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) keys: Keys,
    /// How long each keeps a lock that it got.
    pub(crate) section: Duration,
    /// How long each wants none after it gave one back.
    pub(crate) rest: Duration,
}

/// What each worker competes for.
pub(crate) enum Keys {
    /// One key for all, with workers of other processes perhaps.
    One(Arc<Baton>),
    /// A key for each.
    Own,
}

impl<L: Locker> Tasks<L> {
    pub(crate) fn new(locker: L, team: &Team) -> Self {
        let seats = (team.first..team.first + team.count).map(|worker| {
            let (key, baton) = match &team.keys {
                Keys::One(baton) => ("one".to_owned(), baton.clone()),
                Keys::Own => (format!("own:{worker}"), Arc::new(Baton::in_memory())),
            };
            Arc::new(Seat {
                worker: u64::from(worker),
                lock: locker.lock_of(&key),
                baton,
            })
        });
        let seats = seats.collect();
        Tasks {
            locker,
            seats,
            section: team.section,
            rest: team.rest,
        }
    }

    async fn run(&mut self, time: Duration) -> Fallible<Round> {
        let until = Instant::now() + time;
        let (section, rest) = (self.section, self.rest);
        let mut workers = JoinSet::new();
        for (at, seat) in self.seats.iter().cloned().enumerate() {
            workers.spawn(async move { (at, seat.work(until, section, rest).await) });
        }
        let mut tallies = vec![Tally::new(); self.seats.len()];
        while let Some(done) = workers.join_next().await {
            let (at, tally) = done?;
            tallies[at] = tally?;
        }
        Ok(Round::of(time, &tallies))
    }
}

impl<L: Lock> Seat<L> {
    async fn work(&self, until: Instant, section: Duration, rest: Duration) -> Fallible<Tally> {
        let mut tally = Tally::new();
        let mut given_up = pin!(tokio::time::sleep_until((until + PATIENCE).into()));
        let mut asked = Instant::now();
        while asked < until {
            let guard = tokio::select! {
                biased;
                guard = self.lock.lock() => guard?,
                () = &mut given_up => {
                    tally.waited(asked.elapsed());
                    return Ok(tally);
                }
            };
            let granted = Instant::now();
            let handed_over = self.baton.take(self.worker)?;
            stay_busy(granted, section);
            self.baton.give(self.worker)?;
            self.lock.unlock(guard).await?;
            tally.count(granted - asked, handed_over, granted < until);
            if rest.is_zero() {
                // A lock that never waits must not keep its thread from the other workers.
                tokio::task::coop::consume_budget().await;
            } else {
                tokio::time::sleep(rest).await;
            }
            asked = Instant::now();
        }
        Ok(tally)
    }
}

/// What a holder does with its lock: work that keeps its core.
fn stay_busy(since: Instant, time: Duration) {
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl<L: Locker> Crew for Tasks<L> {
    fn round(&mut self, time: Duration) -> Soon<'_, Round> {
        Box::pin(self.run(time))
    }

    fn dismiss(self: Box<Self>) -> Soon<'static, ()> {
        Box::pin(self.locker.close())
    }
}
