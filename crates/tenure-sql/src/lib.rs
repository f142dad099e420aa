//! Locks in SQL databases.
//!
//! [`sqlite`] keeps claims as rows of a file, for the processes of one machine. Its page says how a claim lives in the
//! table, what the store promises, and which options it has.
//!
//! The module `claims` decides each verb from the rows of one key. It is pure, and names no database.

#[cfg(all(unix, feature = "sqlite"))]
mod claims;
#[cfg(all(unix, feature = "sqlite"))]
pub mod sqlite;
