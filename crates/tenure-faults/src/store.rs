//! The store of a run, the links to it, and what can be done to both.

use std::io;
use std::path::Path;

use tenure_servers::{Disk, Proxy, Redis, SteppedClock};

/// What workers ask of their links, in turn: the defaults, which are longer than a lease, and less patience.
const OPTIONS: [&str; 2] = ["", "?connect_timeout=500ms&command_timeout=400ms"];

/// The key that outlives all locks: tokens must rise for ever.
const COUNTER: &str = "tenure_tokens";

/// A store to run on.
#[derive(Debug)]
pub enum Store {
    /// A file that all workers write: nothing befalls it but what befalls them.
    File {
        /// Its URL.
        url: String,
    },
    /// A Redis server, and what it keeps on its disk.
    Redis {
        /// The server, with a clock that steps.
        server: Box<Redis>,
        /// How much a kill loses.
        disk: Disk,
        /// One for each worker.
        links: Vec<Proxy>,
    },
}

impl Store {
    /// An SQLite file in that folder.
    pub fn sqlite(folder: &Path) -> Store {
        Store::File {
            url: format!("sqlite:{}", folder.join("locks.db").display()),
        }
    }

    /// A Redis server of its own.
    ///
    /// # Errors
    /// What the system says if it cannot be started.
    pub fn redis(disk: Disk) -> io::Result<Store> {
        let server = Redis::start_on(disk, Some(SteppedClock::new()?))?;
        Ok(Store::Redis {
            server: Box::new(server),
            disk,
            links: Vec::new(),
        })
    }

    /// Its URL, past all links.
    pub fn url(&self) -> String {
        match self {
            Store::File { url } => url.clone(),
            Store::Redis { server, .. } => server.url(),
        }
    }

    /// Gives each of so many workers a link of its own, and answers where each finds the store.
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

    /// What no lock uses any more and no time limit removes, beside the counter that tokens come from.
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
