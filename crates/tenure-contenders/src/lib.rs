//! What the stores share in which the contenders of a lock queue on a server: etcd and ZooKeeper.
//!
//! In such a store, a claim has a record on the server, a key or a node, for as long as it waits and holds. The order in which
//! the records were created is the queue, and the oldest holds the lock. A record lasts as long as something that several
//! claims share: a lease in etcd, a session in ZooKeeper. So a claim that ends must be removed, and removed again until the
//! server has answered; otherwise the others keep its record alive, and its lock is never free.
//!
//! - [`Value`] is what a record says of its claim.
//! - [`Table`] is what a client knows of its own claims.
//! - [`Contenders`] is what a store adds, and [`release`], [`begin_renewal`] and [`end_claims`] are the verbs that follow from it. A
//!   store spawns `end_claims` when it is opened, calls [`Table::close`] when it is closed or dropped, and calls
//!   [`remove_after_cooldown`] when it finds the mark of an eviction on a claim of its own.
//! - [`Watched`] is what waiting claims wait for, and [`escape`] makes the name of a lock a part of a path.

mod escape;
mod release;
mod store;
mod table;
mod value;
mod watched;

pub use escape::{Character, escape, unescape};
pub use release::release;
pub use store::{Contender, Contenders, begin_renewal, end_claims, placed_but, remove_after_cooldown};
pub use table::{Known, Placed, Spot, Table};
pub use value::Value;
pub use watched::Watched;
