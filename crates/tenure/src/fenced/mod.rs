//! Writes that only the newest holder of a lock can make: SQL and Redis scripts for any client, and a cell for tests.
//! This module does not connect to a database: it makes statements and their parameters, and interprets the replies.
//!
//! A holder that was paused beyond its lease, or whose request was on the wire for too long, writes after another has
//! taken the lock; no lock can prevent that. The resource can: it keeps the greatest [token](crate::Guard::token) that
//! has written, and refuses a smaller one. That takes one column and one line of SQL:
//!
//! ```
//! use tenure::fenced::{self, Dialect, Fence};
//!
//! let accounts = Fence::new(Dialect::Sqlite, "accounts", &["id"])?;
//! let update = accounts.update(&["balance"])?;
//! assert_eq!(
//!     update.sql(),
//!     "UPDATE `accounts` SET `balance` = ?, `fence` = ? WHERE `id` = ? AND `fence` <= ?"
//! );
//! // With any client: let rows = connection.execute(update.sql(), (balance, token, id, token))?;
//! # let rows = 1;
//! fenced::applied(rows)?; // no row: a newer holder has written
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On Redis, a script does the same: [`RedisFence`]. In etcd, a transaction compares the claim's key: with the feature `etcd`,
//! `put_in_etcd` writes only while the lock is held. In ZooKeeper, with the feature `zookeeper`, `set_in_zookeeper` does.
//!
//! # What it gives, and what not
//! - **Old holders do not interleave.** Once a token has written a row, no smaller token writes it again, even if
//!   requests are paused, delayed or repeated.
//! - **Not atomicity.** The writes of an old holder *before* the new holder's first write stay: of two related rows, one
//!   may have the old holder's value and one the new holder's. Write related rows in one transaction, and let the new
//!   holder write (or only fence, with no columns) every row before it relies on what it reads.
//! - **Not reading.** An old holder may read, and use what it read.
//! - **Only for statements with the condition.** A statement without it is not fenced, unless the table has a
//!   [guard](Fence::guard): triggers that refuse it.
//!
//! **Why `<=` and not `<`.** One holder may write a row many times with one token, and concurrent readers may share
//! one. With `<` the second write of a holder would be refused as stale.
//!
//! **What the column is.** `BIGINT NOT NULL DEFAULT 0` ([`Fence::column_ddl`]): tokens are 1 to `i64::MAX`, so 0 is
//! older than all. [`Fence::new`] explains why it must be an integer and NOT NULL. Deleting a row deletes its fence:
//! keep the row, and mark it as deleted.

mod cell;
mod dialect;
#[cfg(feature = "etcd")]
mod etcd;
mod fence;
mod name;
mod redis;
mod stale;
mod statement;
mod trigger;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use cell::FencedCell;
pub use dialect::{Dialect, Placeholders};
#[cfg(feature = "etcd")]
pub use etcd::put_in_etcd;
pub use fence::{Fence, InvalidStatement};
pub use name::InvalidName;
pub use redis::{InvalidRedisKey, RedisFence, RedisWrite};
pub use stale::{REFUSED, Stale, applied};
pub use statement::{Slot, Statement};
pub use trigger::Trigger;
#[cfg(feature = "zookeeper")]
pub use zookeeper::set_in_zookeeper;
