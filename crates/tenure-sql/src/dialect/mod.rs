//! What only SQLite needs. What a verb decides is in `claims/`.

pub mod sqlite;
