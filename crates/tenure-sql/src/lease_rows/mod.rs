//! The textbook's lock tables: one row for each key, which its holder prolongs. One driver serves all of them; each layout
//! has its own statements on each kind of database.
//!
//! The driver decides nothing about who holds a key: each statement does, in one step, on the server's clock. Every
//! statement that takes a row, or prolongs its lease, locks the row first, without waiting for it, and reads the clock
//! after that. A statement that takes a row also carries the time after which it must have no effect (B4).

mod acquire;
mod holder;
mod inspect;
mod layout;
mod own_claims;
mod profile;
mod release;
mod renew;
mod reply;
mod rows;
mod session;
mod statement;
mod store;
mod table;

#[cfg(feature = "mysql")]
pub(crate) use holder::LONGEST_ID;
pub(crate) use layout::Layout;
#[cfg(feature = "mysql")]
pub(crate) use reply::Seen;
pub(crate) use reply::{Taken, seen};
pub(crate) use session::LeaseSession;
pub(crate) use statement::{Dialect, Statements, Values};
pub(crate) use store::{create, open};
pub(crate) use table::{Column, Kinds, Widths, check_table, schema};
#[cfg(feature = "mysql")]
pub(crate) use table::{Complaint, Cure};
