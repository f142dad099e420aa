//! Locks in Go's key layout: each contender of a lock has a key below the lock's name, and the oldest key holds the lock.
//!
//! The order of the create revisions is the queue. A claim is granted once all contenders before it have left, or admit it.
//! [`contenders`] decides that, and [`leases`] keeps keys alive.

mod acquire;
mod confirm;
mod contenders;
mod evidence;
mod examine;
mod inspect;
mod leases;
mod names;
mod placed;
mod profile;
mod release;
mod renew;
mod requests;
mod store;
mod watch;

pub use evidence::LockEvidence;
pub use store::EtcdStore;
