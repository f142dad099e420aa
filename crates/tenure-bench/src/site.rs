//! Where the locks of one crew are: a store of its own, which nobody else is measured on.
//! Not here: who locks there (`client`).

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_servers::Redis;

use crate::Fallible;
use crate::plan::Store;

/// The lock file within a crew's folder.
const FILE: &str = "locks.db";

/// Made for one crew, and removed with all that is in it when this is dropped, whatever happens.
pub(crate) struct Site {
    pub(crate) place: Place,
    _server: Option<Redis>,
    _folder: TempDir,
}

/// How a crew finds its store, in whatever process it works.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) store: Store,
    /// As `tenure::connect` takes it.
    pub(crate) url: String,
    /// What the crew needs of files lies here.
    pub(crate) folder: PathBuf,
}

impl Site {
    /// Makes a folder within `root`, and a server if the store is one: on a free port, writing nothing to disk.
    pub(crate) fn make(store: Store, root: &Path) -> Fallible<Self> {
        let folder = tempfile::Builder::new()
            .prefix("tenure-bench-")
            .tempdir_in(root)?;
        let (url, server) = match store {
            Store::Memory => ("memory:".to_owned(), None),
            Store::Sqlite => (format!("sqlite:{}", encoded(&folder.path().join(FILE))), None),
            Store::Redis => {
                let server = Redis::start()?;
                (server.url(), Some(server))
            }
        };
        let place = Place {
            store,
            url,
            folder: folder.path().to_owned(),
        };
        Ok(Site {
            place,
            _server: server,
            _folder: folder,
        })
    }
}

impl Place {
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.join(FILE)
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

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A path as it stands in a URL.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(String::new(), |text, &byte| match plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
}
