//! Many names mapped to a few mutexes.

use std::sync::Arc;

use tenure_backend::LockKey;

use crate::engine::Engine;
use crate::error::Error;
use crate::lock::mutex::Mutex;

/// A fixed number of mutexes for any number of names: limits the number of keys in the store.
///
/// Every client that uses the same key and number of stripes maps a name to the same stripe (FNV-1a, 64 bits). Two
/// names may share a stripe and then exclude each other. A task that locks two names of one `Striped` may therefore
/// deadlock with itself: use a [`multi`](crate::multi) of distinct stripes instead.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let carts = client.striped("carts", 64);
/// let guard = carts.mutex("customer 4711").lock().await?;
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Striped {
    stripes: Arc<[Mutex]>,
}

impl Striped {
    /// Maximum number of stripes, all of which are created at once. More are [`Invalid`](crate::Error::Invalid) at
    /// first use.
    pub const MAX_STRIPES: usize = 1 << 16;

    pub(crate) fn new(engine: &Arc<Engine>, key: &str, stripes: usize) -> Self {
        if stripes > Self::MAX_STRIPES {
            let message = format!(
                "at most {} stripes, not {stripes}: more would hardly be fewer collisions",
                Self::MAX_STRIPES
            );
            let mut refused = Mutex::new(engine, key);
            refused.0.queue = Err(Error::Invalid(message.into()));
            return Striped {
                stripes: Arc::new([refused]),
            };
        }
        // If the longest key is invalid, every stripe gets that key and fails. Otherwise it would depend on a name's
        // hash whether the name works.
        let longest = format!("{key}#{}", stripes.max(1) - 1);
        let fits = LockKey::new(&longest).is_ok();
        let name = |stripe| {
            if fits {
                format!("{key}#{stripe}")
            } else {
                longest.clone()
            }
        };
        Striped {
            stripes: (0..stripes.max(1))
                .map(|stripe| Mutex::new(engine, &name(stripe)))
                .collect(),
        }
    }

    /// The mutex for `name`. Its key is `key#stripe`, such as `carts#7`.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> &Mutex {
        &self.stripes[self.stripe(name.as_ref())]
    }

    /// All mutexes, from stripe 0 on. To acquire any free one, try them one after the other.
    pub fn stripes(&self) -> &[Mutex] {
        &self.stripes
    }

    fn stripe(&self, name: &[u8]) -> usize {
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        usize::try_from(hash % self.stripes.len() as u64).unwrap_or(0)
    }
}
