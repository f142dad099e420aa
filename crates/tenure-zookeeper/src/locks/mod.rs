//! Locks as ephemeral nodes: each contender of a lock has a node below the lock's own, and the oldest holds the lock.
//!
//! The numbers that ZooKeeper appends to the names are the queue. A claim is granted once all contenders before it have left, or
//! admit it. [`contenders`] decides that, and [`sessions`] keeps nodes alive.

mod acquire;
mod confirm;
mod contenders;
mod evidence;
mod examine;
mod hints;
mod inspect;
mod kinds;
mod names;
mod placed;
mod pool;
mod profile;
mod release;
mod renew;
mod requests;
mod sessions;
mod store;
mod watch;

pub use evidence::LockEvidence;
pub use store::ZookeeperStore;
