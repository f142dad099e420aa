//! One process of workers: tasks that take turns on their keys until a round has ended.

use std::io::BufRead;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlock::async_lock::RLock;
use rslock::LockManager;
use tenure::Settings;
use tokio::task::JoinSet;

use crate::Fallible;
use crate::baton::Baton;
use crate::client::polling::Polling;
use crate::client::statements::Statements;
use crate::client::{Lock, peers, waiting};
use crate::plan::{Client, Store};
use crate::processes::Work;
use crate::tally::Round;

/// How long after its round a wait may last. It is then given up, and counts for as long as it lasted: some peers let
/// those who wait poll at the same moments, and take seconds to serve the last of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the lone waiter wants nothing after each of its turns, so that it comes whenever it comes.
const REST: Duration = Duration::from_millis(5);

/// How long a client that lingers keeps a key: the longest time that Tenure allows.
const LINGER: Duration = Duration::from_millis(10);

/// How long closing may take: far longer than giving back what the workers of a bench can leave.
const CLOSING: Duration = Duration::from_secs(10);

/// One worker's place, from round to round.
struct Seat<L> {
    worker: u32,
    lock: L,
    baton: Arc<Baton>,
    /// How long it keeps a lock that it got.
    section: Duration,
    /// How long it wants none after it gave one back.
    rest: Duration,
}

/// The hidden verb: runs one process of a crew.
pub(crate) fn work(work: &Work) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (place, url) = (&work.place, &*work.place.url);
    runtime.block_on(async {
        match (work.client, place.store) {
            (Client::Tenure, _) => tenure(Settings::default(), work).await,
            (Client::TenureNoPassing, _) => tenure(Settings::default().passing(false), work).await,
            (Client::TenureLinger, _) => tenure(Settings::default().linger(LINGER), work).await,
            (Client::Rslock, _) => serve(peers::keys(&LockManager::new(vec![url])), work).await,
            (Client::Rlock, _) => {
                let manager = RLock::new(url).await?;
                serve(peers::keys(&manager), work).await?;
                manager.shutdown().await;
                Ok(())
            }
            (Client::Bare, Store::Memory) => serve(waiting::mutexes(), work).await,
            (Client::Bare, Store::Sqlite) => {
                serve(waiting::keys(Statements::open(&place.lock_file())?), work).await
            }
            (Client::Bare, Store::Redis) => serve(waiting::keys(Polling::open(url).await?), work).await,
        }
    })
}

async fn tenure(settings: Settings, work: &Work) -> Fallible<()> {
    let client = tenure::connect_with(&work.place.url, settings).await?;
    serve(|key| client.mutex(key), work).await?;
    Ok(client.close(CLOSING).await?)
}

/// Runs a round for each line of stdin, which says how many microseconds it lasts, and prints what the workers saw.
async fn serve<L: Lock>(lock_of: impl FnMut(&str) -> L, work: &Work) -> Fallible<()> {
    let seats = seats(lock_of, work)?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_micros(line?.parse()?);
        println!("{}", serde_json::to_string(&round(&seats, time).await?)?);
    }
    Ok(())
}

/// The places of this process's workers. `lock_of` is called once for each, before anything is measured.
fn seats<L: Lock>(mut lock_of: impl FnMut(&str) -> L, work: &Work) -> Fallible<Vec<Arc<Seat<L>>>> {
    let tasks = work.workload.tasks();
    let first: u32 = tasks[..work.process].iter().sum();
    let shared = Arc::new(match tasks.len() {
        1 => Baton::in_memory(),
        _ => Baton::open(&work.place.baton())?,
    });
    let rest = match work.workload.is_lone(work.process) {
        true => REST,
        false => Duration::ZERO,
    };
    let seat = |worker| {
        let (key, baton) = match work.workload.has_one_key() {
            true => ("one".to_owned(), shared.clone()),
            false => (format!("own:{worker}"), Arc::new(Baton::in_memory())),
        };
        Arc::new(Seat {
            worker,
            lock: lock_of(&key),
            baton,
            section: work.section,
            rest,
        })
    };
    Ok((first..first + tasks[work.process]).map(seat).collect())
}

async fn round<L: Lock>(seats: &[Arc<Seat<L>>], time: Duration) -> Fallible<Round> {
    let until = Instant::now() + time;
    let mut workers = JoinSet::new();
    for seat in seats {
        let seat = Arc::clone(seat);
        workers.spawn(async move { seat.work(until, time).await });
    }
    let mut all = Round::new(time);
    while let Some(round) = workers.join_next().await {
        all.join(&round??);
    }
    Ok(all)
}

impl<L: Lock> Seat<L> {
    async fn work(&self, until: Instant, time: Duration) -> Fallible<Round> {
        let (mut round, mut grants) = (Round::new(time), 0);
        let mut given_up = pin!(tokio::time::sleep_until((until + PATIENCE).into()));
        let mut asked = Instant::now();
        while asked < until {
            let guard = tokio::select! {
                biased;
                guard = self.lock.lock() => guard?,
                () = &mut given_up => {
                    round.waited(asked.elapsed());
                    break;
                }
            };
            let granted = Instant::now();
            let handed_over = self.baton.take(self.worker.into())?;
            stay_busy(granted, self.section);
            self.baton.give(self.worker.into())?;
            self.lock.unlock(guard).await?;
            round.waited(granted - asked);
            if granted < until {
                grants += 1;
                round.handovers += u64::from(handed_over);
            }
            if self.rest.is_zero() {
                // A lock that never waits must not keep its thread from the other workers.
                tokio::task::coop::consume_budget().await;
            } else {
                tokio::time::sleep(self.rest).await;
            }
            asked = Instant::now();
        }
        round.grants.push(grants);
        Ok(round)
    }
}

/// What a holder does with its lock: work that keeps its core.
fn stay_busy(since: Instant, time: Duration) {
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}
