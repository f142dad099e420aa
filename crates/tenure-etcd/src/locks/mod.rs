//! Locks in Go's key layout: each contender of a lock has a key below the lock's name, and the oldest key holds the lock.
//!
//! The order of the create revisions is the queue. A claim is granted once all contenders before it have left, or admit it.
//! [`contenders`] decides that, [`leases`] keeps keys alive, and [`table`] knows this client's own claims.

mod acquire;
mod confirm;
mod contenders;
mod evidence;
mod examine;
mod inspect;
mod leases;
mod names;
mod profile;
mod release;
mod renew;
mod requests;
mod store;
mod table;
mod targets;
mod value;
mod watch;

pub use evidence::LockEvidence;
pub use store::EtcdStore;
