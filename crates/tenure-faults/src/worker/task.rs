//! Task of a worker: acquires a lock, works, and releases the lock, over and over until the worker ends.

use std::io;

use tenure::{ClaimRef, Client, Error, Guard, LockKey, Owner};
use tenure_testkit::{Dice, EventKind};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::args::PlantedBug;
use super::attempt_log::Entry;
use super::hold::work;
use super::lock::AnyLock;
use super::plan::{LockPlan, Patience};
use super::resources::Resources;
use crate::keys::Key;

/// Pause after an attempt fails because of the store.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) owner: Owner,
    /// Keys that the task chooses from: those whose kind of lock and fairness the store supports.
    pub(crate) keys: Vec<Key>,
    /// Leases that the task chooses from, the longest last.
    pub(crate) leases: [Duration; 3],
    /// Logs the task's latest attempt.
    pub(crate) last: Entry,
    pub(crate) resources: Resources,
    pub(crate) dice: Dice,
    pub(crate) ends: watch::Receiver<bool>,
}

impl Task {
    pub(crate) async fn run(mut self) -> io::Result<()> {
        while !*self.ends.borrow() {
            let plan = LockPlan::make(&self.keys, &self.leases, &mut self.dice);
            let lock = AnyLock::new(&self.client, &self.owner, &plan, self.last.plant);
            let entry = self.entry();
            if let Some(guard) = self.acquire(&plan, &lock, &entry).await? {
                self.hold(guard, &plan, &lock, &entry).await?;
            }
        }
        Ok(())
    }

    fn entry(&mut self) -> Entry {
        self.last.number += 1;
        self.last.clone()
    }

    async fn acquire(&mut self, plan: &LockPlan, lock: &AnyLock, entry: &Entry) -> io::Result<Option<Guard>> {
        entry.event(EventKind::Invoked {
            key: LockKey::new(plan.key.name).map_err(io::Error::other)?,
            owner: entry.number,
            mode: plan.mode,
        })?;
        let got = tokio::select! {
            biased;
            () = given_up(plan.patience, &mut self.ends) => None,
            got = request(plan, lock, entry.clone()) => Some(got),
        };
        match got {
            Some(Ok(Some(guard))) => {
                entry.acquired(&guard)?;
                return Ok(Some(guard));
            }
            Some(Ok(None) | Err(Error::Timeout)) | None => entry.event(EventKind::Failed)?,
            Some(Err(Error::Backend(_))) => {
                entry.event(EventKind::Unknown)?;
                sleep(RETRY_PAUSE).await;
            }
            Some(Err(error)) => return Err(io::Error::other(error)),
        }
        Ok(None)
    }

    async fn hold(&mut self, guard: Guard, plan: &LockPlan, lock: &AnyLock, entry: &Entry) -> io::Result<()> {
        let inner = self.entry();
        work(&guard, entry, plan, lock, inner, &self.resources).await?;
        if self.last.plant == Some(PlantedBug::NeverRelease) {
            // Planted bug: the task keeps the lock until its process is killed.
            return std::future::pending().await;
        }
        entry.event(EventKind::ReleaseInvoked)?;
        if !plan.unlocks {
            drop(guard);
        } else if guard.unlock().await.is_ok() {
            entry.event(EventKind::Released)?;
        }
        Ok(())
    }
}

/// Acquires the lock, and logs when its claim waits in a fair queue.
async fn request(plan: &LockPlan, lock: &AnyLock, entry: Entry) -> Result<Option<Guard>, Error> {
    let queues = plan.key.fair;
    let log_queued = move |_: &ClaimRef| {
        if queues {
            // An error is ignored: without this event, the checker may miss violations, but reports no false ones.
            let _ = entry.event(EventKind::Queued);
        }
    };
    let limit = match plan.patience {
        Patience::None => return lock.try_lock().await,
        Patience::Limit(limit) => Some(limit),
        Patience::Endless | Patience::DroppedAfter(_) => None,
    };
    lock.lock(limit).on_waiting(log_queued).await.map(Some)
}

/// Completes when the task must drop the future with which it acquires the lock: after the time in `DroppedAfter`, or
/// when the worker ends.
async fn given_up(patience: Patience, ends: &mut watch::Receiver<bool>) {
    let end = async {
        // Never fails: the sender lives until the worker ends.
        let _ = ends.wait_for(|ends| *ends).await;
    };
    match patience {
        Patience::DroppedAfter(time) => tokio::select! { () = end => {}, () = sleep(time) => {} },
        _ => end.await,
    }
}
