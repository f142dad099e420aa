//! A task of a worker: it locks, works, and gives back, until it is told to end.

use std::io;

use tenure::{ClaimRef, Client, Error, Guard, LockKey, Owner};
use tenure_testkit::{Dice, EventKind};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::args::Plant;
use super::entry::Entry;
use super::face::Face;
use super::holding::work;
use super::resources::Resources;
use super::wish::{Patience, Wish};
use crate::keys::Key;

/// How long a task rests when the store has failed.
const REST: Duration = Duration::from_millis(50);

/// A task, its tools, and its chances.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) owner: Owner,
    /// What the store serves.
    pub(crate) keys: Vec<Key>,
    /// Its latest attempt.
    pub(crate) last: Entry,
    pub(crate) resources: Resources,
    pub(crate) dice: Dice,
    pub(crate) ends: watch::Receiver<bool>,
}

impl Task {
    pub(crate) async fn run(mut self) -> io::Result<()> {
        while !*self.ends.borrow() {
            let wish = Wish::make(&self.keys, &mut self.dice);
            let face = Face::new(&self.client, &self.owner, &wish, self.last.plant);
            let entry = self.entry();
            if let Some(guard) = self.acquire(&wish, &face, &entry).await? {
                self.hold(guard, &wish, &face, &entry).await?;
            }
        }
        Ok(())
    }

    fn entry(&mut self) -> Entry {
        self.last.number += 1;
        self.last.clone()
    }

    async fn acquire(&mut self, wish: &Wish, face: &Face, entry: &Entry) -> io::Result<Option<Guard>> {
        entry.event(EventKind::Invoked {
            key: LockKey::new(wish.key.name).map_err(io::Error::other)?,
            owner: entry.number,
            mode: wish.mode,
        })?;
        let got = tokio::select! {
            biased;
            () = given_up(wish.patience, &mut self.ends) => None,
            got = ask(wish, face, entry.clone()) => Some(got),
        };
        match got {
            Some(Ok(Some(guard))) => {
                entry.acquired(&guard)?;
                return Ok(Some(guard));
            }
            Some(Ok(None) | Err(Error::Timeout)) | None => entry.event(EventKind::Failed)?,
            Some(Err(Error::Backend(_))) => {
                entry.event(EventKind::Unknown)?;
                sleep(REST).await;
            }
            Some(Err(error)) => return Err(io::Error::other(error)),
        }
        Ok(None)
    }

    async fn hold(&mut self, guard: Guard, wish: &Wish, face: &Face, entry: &Entry) -> io::Result<()> {
        let inner = self.entry();
        work(&guard, entry, wish, face, inner, &self.resources).await?;
        if self.last.plant == Some(Plant::Keep) {
            // Until the process is killed: what is planted is a program that forgets.
            return std::future::pending().await;
        }
        entry.event(EventKind::ReleaseInvoked)?;
        if !wish.unlocks {
            drop(guard);
        } else if guard.unlock().await.is_ok() {
            entry.event(EventKind::Released)?;
        }
        Ok(())
    }
}

/// Asks for the lock, and notes when it is known to queue.
async fn ask(wish: &Wish, face: &Face, entry: Entry) -> Result<Option<Guard>, Error> {
    let queues = wish.key.fair;
    let told = move |_: &ClaimRef| {
        if queues {
            // A line that is missing makes the judge milder, never wrong.
            let _ = entry.event(EventKind::Queued);
        }
    };
    let limit = match wish.patience {
        Patience::None => return face.try_lock().await,
        Patience::Limit(limit) => Some(limit),
        Patience::Endless | Patience::DroppedAfter(_) => None,
    };
    face.lock(limit).on_waiting(told).await.map(Some)
}

/// When the task drops its future: at a time it chose, or when it is told to end.
async fn given_up(patience: Patience, ends: &mut watch::Receiver<bool>) {
    let end = async {
        // Its sender goes with the process.
        let _ = ends.wait_for(|ends| *ends).await;
    };
    match patience {
        Patience::DroppedAfter(time) => tokio::select! { () = end => {}, () = sleep(time) => {} },
        _ => end.await,
    }
}
