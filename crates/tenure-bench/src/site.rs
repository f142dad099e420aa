//! A store for the worker processes of one client. No other client uses it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure_servers::{Proxy, Redis, Way, is_installed};

use crate::Fallible;
use crate::cores::Core;
use crate::plan::{Distance, Store};

/// Name of the lock file in the folder of a site, i.e. of one client's store.
const FILE: &str = "locks.db";

/// Delay of each message with `--distance away`. Timers have a resolution of 1 ms, so it may be 1 ms more.
const DELAY: Duration = Duration::from_millis(1);

/// A store and its folder, created for the workers of one client and removed on drop.
pub(crate) struct Site {
    pub(crate) location: Location,
    _proxy: Option<Proxy>,
    _server: Option<Redis>,
    _folder: TempDir,
}

/// What all sites of a run share. A site is the store of one client, with its folder.
pub(crate) struct Sites {
    /// The folder in which the sites' own folders are created.
    root: PathBuf,
    /// The core on which the servers run, if they have one of their own.
    core: Option<Core>,
    /// True if a proxy delays messages to and from a server.
    away: bool,
}

/// How a worker process finds its store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Location {
    pub(crate) store: Store,
    /// URL for `tenure::connect`.
    pub(crate) url: String,
    /// Folder for the files of the workers.
    pub(crate) folder: PathBuf,
}

impl Sites {
    /// Prepares for servers at this distance. `Apart` moves this thread, and those it starts later, off the servers'
    /// core.
    pub(crate) fn prepare(root: PathBuf, distance: Distance) -> Fallible<Self> {
        let core = (distance == Distance::Apart).then(Core::leave).transpose()?;
        let away = distance == Distance::Away;
        Ok(Sites { root, core, away })
    }
}

impl Site {
    /// Creates a folder, and a server if the store has one: on a free port, writing nothing to disk.
    pub(crate) async fn make(store: Store, sites: &Sites) -> Fallible<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tenure-bench-")
            .tempdir_in(&sites.root)?;
        let (mut proxy, mut server) = (None, None);
        let url = match store {
            Store::Memory => "memory:".to_owned(),
            Store::Sqlite => {
                let path = folder.path().join(FILE).display().to_string();
                format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F"))
            }
            Store::Redis => {
                let server = server.insert(Redis::start()?);
                if let Some(core) = sites.core {
                    core.give_to(server.process().pid())?;
                }
                if sites.away {
                    let proxy = proxy.insert(Proxy::start(server.address()).await?);
                    proxy.delay(Way::ToServer, DELAY);
                    proxy.delay(Way::ToClient, DELAY);
                    format!("redis://{}", proxy.address())
                } else {
                    server.url()
                }
            }
        };
        let location = Location {
            store,
            url,
            folder: folder.path().to_owned(),
        };
        Ok(Site {
            location,
            _proxy: proxy,
            _server: server,
            _folder: folder,
        })
    }
}

impl Location {
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The file with the last holder of the key, shared by several processes.
    pub(crate) fn last_holder(&self) -> PathBuf {
        self.folder.join("last_holder")
    }
}

/// Fails if the store needs a program that is not installed. The error says how to install it.
pub(crate) fn check(store: Store) -> Fallible<()> {
    match store {
        Store::Memory | Store::Sqlite => Ok(()),
        Store::Redis if is_installed("redis-server") => Ok(()),
        Store::Redis => Err(
            "`redis-server` is not installed: `cargo xtask setup` or `apt-get install redis-server` brings it, \
             `--store memory,sqlite` does without"
                .into(),
        ),
    }
}
