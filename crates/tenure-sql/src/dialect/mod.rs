//! The databases that can store claims: SQLite. What they can share, the claim logic, is in `claims/`.

pub mod sqlite;
