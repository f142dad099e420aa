//! Many names on a few locks, for threads.

use super::mutex::Mutex;
use super::runtime::Runtime;

/// A fixed number of mutexes that stand for any number of names: see [`tenure::Striped`](crate::Striped). A name has the
/// same stripe here and there.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let carts = client.striped("carts", 64);
/// let guard = carts.mutex("customer 4711").lock()?;
/// # drop(guard); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Striped {
    inner: crate::Striped,
    runtime: Runtime,
}

impl Striped {
    pub(super) fn new(inner: crate::Striped, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Striped { inner, runtime }
    }

    /// The mutex that stands for `name`: `key#stripe`.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Mutex {
        Mutex::new(self.inner.mutex(name).clone(), &self.runtime)
    }

    /// All mutexes, in order: to take any one that is free, try them one after the other.
    pub fn stripes(&self) -> impl ExactSizeIterator<Item = Mutex> {
        let all = self.inner.stripes().iter();
        all.map(|stripe| Mutex::new(stripe.clone(), &self.runtime))
    }
}
