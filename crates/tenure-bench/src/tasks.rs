//! A worker process: its tasks lock and unlock their keys until the round ends.

use std::io::BufRead;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlock::async_lock::RLock;
use rslock::LockManager;
use tenure::Settings;
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinSet;

use crate::Fallible;
use crate::client::polling::Polling;
use crate::client::recipe::{self, Recipe};
use crate::client::rows::Rows;
use crate::client::statements::Statements;
use crate::client::transactions::Transactions;
use crate::client::{Lock, Side, peers, waiting};
use crate::last_holder::LastHolder;
use crate::plan::{Client, Store, Workload};
use crate::processes::Work;
use crate::site::QUORUM_LEASE;
use crate::tally::Round;

/// A worker that still waits this long after the end of its round gives up: with some libraries, all waiters poll at
/// the same moments, and the last of them would wait for seconds. Its wait counts until it gives up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause of the lone waiter after each unlock. It then asks again at an arbitrary moment of the other process's work.
const REST: Duration = Duration::from_millis(5);

/// `Settings::linger` for `Client::TenureLinger`: the maximum that Tenure allows.
const LINGER: Duration = Duration::from_millis(10);

/// Time limit of `close`, far longer than it takes to release all locks of a benchmark.
const CLOSING: Duration = Duration::from_secs(10);

/// With `Workload::Readers`, one of this number of workers writes, and the others read.
const WRITES_ONE_OF: u32 = 8;

/// Number of permits of the semaphore of `Workload::Permits`.
const PERMITS: u32 = 8;

/// A worker, kept from round to round. In each round, a new task of the worker locks and unlocks its key.
struct Worker<L> {
    worker: u32,
    lock: L,
    /// Counts hand-overs, and detects two holders at once. `None` if the lock may have several holders.
    last_holder: Option<Arc<LastHolder>>,
    /// Time for which the worker holds each lock.
    section: Duration,
    /// Pause after each unlock.
    rest: Duration,
}

/// The hidden verb `work`: runs a worker process.
pub(crate) fn work(work: &Work) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (location, url) = (&work.location, &*work.location.url);
    runtime.block_on(async {
        match (work.client, location.store) {
            (Client::Tenure | Client::TenureCluster, _) => tenure(Settings::default(), work).await,
            (Client::TenureQuorum, _) => tenure(Settings::default().lease(QUORUM_LEASE), work).await,
            (Client::TenureNoLocalHandover, _) => {
                tenure(Settings::default().local_handover(false), work).await
            }
            (Client::TenureLinger, _) => tenure(Settings::default().linger(LINGER), work).await,
            (Client::Rslock, _) => serve(peers::keys(&LockManager::new(vec![url])), work).await,
            (Client::Rlock, _) => {
                let manager = RLock::new(url).await?;
                serve(peers::keys(&manager), work).await?;
                manager.shutdown().await;
                Ok(())
            }
            (Client::Redisson | Client::Curator, _) => Err("a worker of a Java client is a JVM".into()),
            (Client::Bare, Store::Memory) => match work.workload {
                Workload::Readers => {
                    let lock = Arc::new(RwLock::new(()));
                    let side = |writes| Side {
                        lock: lock.clone(),
                        writes,
                    };
                    serve(sides(side), work).await
                }
                Workload::Permits => {
                    let semaphore = Arc::new(Semaphore::new(PERMITS as usize));
                    serve(|_| semaphore.clone(), work).await
                }
                _ => serve(waiting::mutexes(), work).await,
            },
            (Client::Bare, Store::Sqlite) => {
                serve(waiting::keys(Statements::open(&location.lock_file())?), work).await
            }
            (Client::Bare, Store::Postgres) => serve(waiting::keys(Rows::open(url).await?), work).await,
            (Client::Go, _) => Err("a worker of etcd's client is a program in Go".into()),
            (Client::Bare, Store::Etcd) => serve(waiting::keys(Transactions::open(url).await?), work).await,
            (Client::Bare, Store::Zookeeper) => serve(recipe::keys(Recipe::open(url).await?), work).await,
            (Client::Bare, Store::Redis) => serve(waiting::keys(Polling::open(url).await?), work).await,
        }
    })
}

async fn tenure(settings: Settings, work: &Work) -> Fallible<()> {
    let client = tenure::connect_with(&work.location.url, settings).await?;
    match work.workload {
        Workload::Readers => {
            let lock = client.rwlock("one");
            let side = |writes| if writes { lock.writer() } else { lock.reader() };
            serve(sides(side), work).await?;
        }
        Workload::Permits => serve(|key| client.semaphore(key, PERMITS).permits(1), work).await?,
        _ => serve(|key| client.mutex(key), work).await?,
    }
    Ok(client.close(CLOSING).await?)
}

/// Returns a function that makes the locks of the workers of `Workload::Readers`. `side` makes the write side if its
/// argument is true, otherwise the read side.
fn sides<L>(mut side: impl FnMut(bool) -> L) -> impl FnMut(&str) -> L {
    let mut worker = 0..;
    move |_| {
        side(
            worker
                .next()
                .is_some_and(|worker: u32| worker.is_multiple_of(WRITES_ONE_OF)),
        )
    }
}

/// Runs a round for each line of stdin, which is its length in microseconds, and prints the counters.
async fn serve<L: Lock>(lock_of: impl FnMut(&str) -> L, work: &Work) -> Fallible<()> {
    let workers = workers(lock_of, work)?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let time = Duration::from_micros(line?.parse()?);
        println!("{}", serde_json::to_string(&round(&workers, time).await?)?);
    }
    Ok(())
}

/// Creates this process's workers. Calls `lock_of` for each before the measurement.
fn workers<L: Lock>(mut lock_of: impl FnMut(&str) -> L, work: &Work) -> Fallible<Vec<Arc<Worker<L>>>> {
    let tasks = work.workload.tasks();
    let first: u32 = tasks[..work.process].iter().sum();
    let shared = Arc::new(match tasks.len() {
        1 => LastHolder::in_memory(),
        _ => LastHolder::open(&work.location.last_holder())?,
    });
    let rest = match work.workload.is_lone(work.process) {
        true => REST,
        false => Duration::ZERO,
    };
    let member = |worker| {
        let (key, last_holder) = match work.workload.has_one_key() {
            true => ("one".to_owned(), shared.clone()),
            false => (format!("own:{worker}"), Arc::new(LastHolder::in_memory())),
        };
        Arc::new(Worker {
            worker,
            lock: lock_of(&key),
            last_holder: work.workload.is_exclusive().then_some(last_holder),
            section: work.section,
            rest,
        })
    };
    Ok((first..first + tasks[work.process]).map(member).collect())
}

async fn round<L: Lock>(workers: &[Arc<Worker<L>>], time: Duration) -> Fallible<Round> {
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for worker in workers {
        let worker = Arc::clone(worker);
        tasks.spawn(async move { worker.work(until, time).await });
    }
    let mut all = Round::new(time);
    while let Some(round) = tasks.join_next().await {
        all.join(&round??);
    }
    Ok(all)
}

impl<L: Lock> Worker<L> {
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
            let last_holder = self.last_holder.as_deref();
            let handed_over = last_holder.map_or(Ok(false), |last| last.acquired(self.worker.into()))?;
            stay_busy(granted, self.section);
            last_holder.map_or(Ok(()), |last| last.releases(self.worker.into()))?;
            self.lock.unlock(guard).await?;
            round.waited(granted - asked);
            if granted < until {
                grants += 1;
                round.handovers += u64::from(handed_over);
            }
            if self.rest.is_zero() {
                // Yields now and then: otherwise a worker whose lock never waits would keep other workers off the
                // thread.
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

/// Work under the lock: keeps its core busy until `time` after `since`.
fn stay_busy(since: Instant, time: Duration) {
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}
