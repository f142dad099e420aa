//! Store of a run, and the links between workers and store.

use std::io;
use std::path::Path;

use tenure_servers::{Disk, Proxy, Redis, SteppedClock};

/// URL options, for every other worker: the default time-outs, which are longer than a lease, and shorter ones.
const OPTIONS: [&str; 2] = ["", "?connect_timeout=500ms&command_timeout=400ms"];

/// Redis key of the token counter. It has no time to live, because tokens must always rise.
const COUNTER: &str = "tenure_tokens";

/// Store of a run.
#[derive(Debug)]
pub enum Store {
    /// SQLite file that all workers use. Faults are injected into the workers only.
    File {
        /// URL of the file.
        url: String,
    },
    /// Redis server, with a link (a proxy) for each worker.
    Redis {
        /// Server process, whose clock can be set.
        server: Box<Redis>,
        /// Persistence of the server, which decides how much data a kill loses.
        disk: Disk,
        /// Link of each worker.
        links: Vec<Proxy>,
    },
}

impl Store {
    /// Uses an SQLite file in `folder`.
    pub fn sqlite(folder: &Path) -> Store {
        Store::File {
            url: format!("sqlite:{}", folder.join("locks.db").display()),
        }
    }

    /// Starts a Redis server.
    ///
    /// # Errors
    /// Returns an error if the server cannot be started.
    pub fn redis(disk: Disk) -> io::Result<Store> {
        let server = Redis::start_on(disk, Some(SteppedClock::new()?))?;
        Ok(Store::Redis {
            server: Box::new(server),
            disk,
            links: Vec::new(),
        })
    }

    /// URL that leads directly to the store, not over a link.
    pub fn url(&self) -> String {
        match self {
            Store::File { url } => url.clone(),
            Store::Redis { server, .. } => server.url(),
        }
    }

    /// Creates a link for each worker of a server. Returns the URL for each worker.
    pub(crate) async fn link(&mut self, workers: usize) -> io::Result<Vec<String>> {
        match self {
            Store::File { url } => Ok(vec![url.clone(); workers]),
            Store::Redis { server, links, .. } => {
                for _ in 0..workers {
                    links.push(Proxy::start(server.address()).await?);
                }
                let urls = links.iter().zip(OPTIONS.iter().cycle());
                Ok(urls
                    .map(|(link, options)| format!("redis://{}{options}", link.address()))
                    .collect())
            }
        }
    }

    /// Redis keys without a time to live, other than the token counter.
    pub(crate) fn kept_for_ever(&self) -> io::Result<Vec<String>> {
        let Store::Redis { server, .. } = self else {
            return Ok(Vec::new());
        };
        let mut kept = Vec::new();
        for key in server.ask(&["KEYS", "*"])?.lines().filter(|key| *key != COUNTER) {
            if server.ask(&["PTTL", key])? == "-1" {
                kept.push(key.to_owned());
            }
        }
        Ok(kept)
    }
}
