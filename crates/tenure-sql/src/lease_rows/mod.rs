//! The textbook's lock tables: one row for each key, which its holder prolongs. One driver serves all of them; each layout
//! has its own statements on each kind of database.
//!
//! The driver decides nothing about who holds a key: each statement does, in one step, on the server's clock. Every
//! statement that takes a row, or prolongs its lease, locks the row first, without waiting for it, and reads the clock
//! after that. A statement that takes a row also carries the time after which it must have no effect (B4).

mod acquire;
pub(crate) mod holder;
mod inspect;
pub(crate) mod layout;
mod own_claims;
mod profile;
mod release;
mod renew;
pub(crate) mod reply;
pub(crate) mod rows;
pub(crate) mod session;
pub(crate) mod statement;
pub(crate) mod store;
pub(crate) mod table;
