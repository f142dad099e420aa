//! The baseline for ZooKeeper: its recipe for locks, over Tenure's own connection. Each contender is a node, the lowest holds the
//! lock, and each other one watches the node before its own.
//!
//! It promises less than Tenure: no token, no deadline and no eviction. The tasks of a process queue at a `tokio::sync::Mutex` for
//! each key, so that only one of them contends in ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use tenure_zookeeper::client::{Acl, Client, Code, Mode, code};
use tenure_zookeeper::{Config, StoreUrl};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Lock;
use super::waiting::mutexes;
use crate::Fallible;

/// The timeout of the session, as long as Tenure's default lease.
const SESSION: Duration = Duration::from_secs(30);

pub(crate) struct Recipe(Client);

impl Recipe {
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let config = Config::from_url(&StoreUrl::parse(url)?)?;
        Ok(Recipe(Client::connect(config, SESSION).await?))
    }
}

/// One worker's handle to a key.
pub(crate) struct Key {
    folder: String,
    client: Client,
    queue: Arc<Mutex<()>>,
}

/// A contender. Dropping it, as a worker does that gives up, deletes its node.
pub(crate) struct Contender {
    client: Client,
    path: Option<String>,
    /// The local mutex, which the next task gets on drop.
    _turn: OwnedMutexGuard<()>,
}

/// Returns a function that makes keys.
pub(crate) fn keys(recipe: Recipe) -> impl FnMut(&str) -> Key {
    let mut queues = mutexes();
    move |name| Key {
        folder: format!("/{name}"),
        client: recipe.0.clone(),
        queue: queues(name),
    }
}

impl Key {
    /// Creates the node of a contender, and at first the folder.
    async fn create(&self) -> Fallible<String> {
        let path = format!("{}/lock-", self.folder);
        loop {
            let created = self
                .client
                .create(&path, b"", Mode::EphemeralSequential, Acl::Open);
            match created.await {
                Err(error) if code(&error) == Some(Code::NO_NODE) => {
                    let folder = self.client.create(&self.folder, b"", Mode::Container, Acl::Open);
                    match folder.await {
                        Err(error) if code(&error) != Some(Code::NODE_EXISTS) => return Err(error.into()),
                        _ => {}
                    }
                }
                created => return Ok(created?.path),
            }
        }
    }
}

impl Lock for Key {
    type Guard = Contender;

    async fn lock(&self) -> Fallible<Contender> {
        let turn = self.queue.clone().lock_owned().await;
        let own = self.create().await?;
        let contender = Contender {
            client: self.client.clone(),
            path: Some(own.clone()),
            _turn: turn,
        };
        loop {
            let (names, _) = self.client.get_children(&self.folder).await?;
            let paths = names.iter().map(|name| format!("{}/{name}", self.folder));
            // Names differ in their numbers only, which have the same length and do not wrap around in a benchmark.
            let Some(before) = paths.filter(|path| *path < own).max() else {
                return Ok(contender);
            };
            if let (Some(_), mut watch) = self.client.exists_watched(&before).await? {
                watch.fired().await;
            }
        }
    }

    async fn unlock(&self, mut contender: Contender) -> Fallible<()> {
        match contender.path.take() {
            Some(path) => Ok(self.client.delete(&path, None).await?),
            None => Ok(()),
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let client = self.client.clone();
            tokio::spawn(async move { client.delete(&path, None).await });
        }
    }
}
