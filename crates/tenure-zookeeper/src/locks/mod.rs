//! Locks as ephemeral nodes: each contender of a lock has a node below the lock's own, and the oldest holds the lock.
//!
//! The numbers that ZooKeeper appends to the names are the queue. A claim is granted once all contenders before it have left, or
//! admit it. [`contenders`] decides that, [`sessions`] keeps nodes alive, and [`table`] knows this client's own claims.

mod acquire;
mod confirm;
mod contenders;
mod evidence;
mod examine;
mod inspect;
mod kinds;
mod names;
mod pool;
mod profile;
mod release;
mod renew;
mod requests;
mod sessions;
mod store;
mod table;
mod targets;
mod value;
mod watch;

pub use evidence::LockEvidence;
pub use store::ZookeeperStore;
