//! Locks in SQL databases.
//!
//! [`sqlite`] keeps claims as rows of a file, for the processes of one machine. [`server`] keeps them in the tables of a
//! database server. Each page says how a claim lives in the table, what the store promises, and which options it has.
//!
//! The module `claims` decides each verb from the rows of one key. It is pure, and names no database. `lease_rows` is the driver
//! of the textbook's lock tables, which decide with each statement; `postgres` and `mysql` run the statements.

#[cfg(all(unix, feature = "sqlite"))]
mod claims;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod lease_rows;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod server;
#[cfg(all(unix, feature = "sqlite"))]
pub mod sqlite;
