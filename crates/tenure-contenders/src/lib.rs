//! What the stores share in which the contenders of a lock queue on a server: etcd and ZooKeeper.
//!
//! In such a store, a claim has a record on the server, a key or a node, for as long as it waits and holds. The order in which
//! the records were created is the queue, and the oldest holds the lock. A record lasts as long as something that several
//! claims share: a lease in etcd, a session in ZooKeeper. So a claim that ends must be removed, and removed again until the
//! server has answered; otherwise the others keep its record alive, and its lock is never free.
//!
//! - [`Value`] is what a record says of its claim.
//! - [`Table`] is what a client knows of its own claims.
//! - [`Contenders`], [`Acquire`], [`Renew`], [`Inspect`], [`Examine`] and [`Watch`] are what a store adds, and [`open`] makes a
//!   [`Backend`](tenure_backend::Backend) of them. A store calls [`remove_after_cooldown`] when it finds the mark of an eviction on a
//!   claim of its own.
//! - [`ClaimLease`] is the lease of one claim. Callers that wait for one of [`SharedAttempts`] to connect share its failure.
//! - [`Watched`] is what waiting claims wait for, [`escape`] makes the name of a lock a part of a path, and [`profile`] has the
//!   promises of these stores.

mod acquire;
mod backend;
mod claim_lease;
mod escape;
mod inspect;
mod profile;
mod release;
mod renew;
mod shared_attempts;
mod store;
mod table;
mod value;
mod watched;

pub use acquire::{Acquire, Standing, placed_but};
pub use backend::{Watch, open};
pub use claim_lease::ClaimLease;
pub use escape::{Character, escape, unescape};
pub use inspect::{Examine, Inspect};
pub use profile::{profile, tokens};
pub use renew::{Renew, Renewal};
pub use shared_attempts::{SharedAttempt, SharedAttempts};
pub use store::{Contender, Contenders, remove_after_cooldown};
pub use table::{Known, Placed, Spot, Table};
pub use value::Value;
pub use watched::Watched;
