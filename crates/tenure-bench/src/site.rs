//! Where the locks of one crew are: a store of its own, which no other crew uses.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure_servers::{Proxy, Redis, Way, is_installed};

use crate::Fallible;
use crate::cores::Core;
use crate::plan::{Distance, Store};

/// The lock file within a crew's folder.
const FILE: &str = "locks.db";

/// How much later a message arrives at the least if the server is away. The timers behind it are set to the millisecond: it
/// may be another one.
const DELAY: Duration = Duration::from_millis(1);

/// Made for one crew, and removed with all that is in it when this is dropped, whatever happens.
pub(crate) struct Site {
    pub(crate) place: Place,
    _proxy: Option<Proxy>,
    _server: Option<Redis>,
    _folder: TempDir,
}

/// Where sites are made.
pub(crate) struct Ground {
    /// In which folder.
    root: PathBuf,
    /// On which core the servers run, if one is left to them.
    core: Option<Core>,
    /// Whether what is said to a server takes its time.
    away: bool,
}

/// How a crew finds its store, in whatever process it works.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) store: Store,
    /// As `tenure::connect` takes it.
    pub(crate) url: String,
    /// What the crew needs of files lies here.
    pub(crate) folder: PathBuf,
}

impl Ground {
    /// Prepares for servers so far from this thread and those that it starts from now on.
    pub(crate) fn prepare(root: PathBuf, distance: Distance) -> Fallible<Self> {
        let core = (distance == Distance::Apart).then(Core::leave).transpose()?;
        let away = distance == Distance::Away;
        Ok(Ground { root, core, away })
    }
}

impl Site {
    /// Makes a folder, and a server if the store is one: on a free port, writing nothing to disk.
    pub(crate) async fn make(store: Store, ground: &Ground) -> Fallible<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tenure-bench-")
            .tempdir_in(&ground.root)?;
        let (mut proxy, mut server) = (None, None);
        let url = match store {
            Store::Memory => "memory:".to_owned(),
            Store::Sqlite => {
                let path = folder.path().join(FILE).display().to_string();
                format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F"))
            }
            Store::Redis => {
                let server = server.insert(Redis::start()?);
                if let Some(core) = ground.core {
                    core.give_to(server.process().pid())?;
                }
                if ground.away {
                    let proxy = proxy.insert(Proxy::start(server.address()).await?);
                    proxy.delay(Way::ToServer, DELAY);
                    proxy.delay(Way::ToClient, DELAY);
                    format!("redis://{}", proxy.address())
                } else {
                    server.url()
                }
            }
        };
        let place = Place {
            store,
            url,
            folder: folder.path().to_owned(),
        };
        Ok(Site {
            place,
            _proxy: proxy,
            _server: server,
            _folder: folder,
        })
    }
}

impl Place {
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The file that says which worker of several processes held the key last.
    pub(crate) fn baton(&self) -> PathBuf {
        self.folder.join("baton")
    }
}

/// Says what to do if a store that is asked for needs a program that is not there.
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
