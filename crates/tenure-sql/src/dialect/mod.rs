//! The databases: what each does in its own way. What they have in common is in `claims/` and `request.rs`.

#[cfg(all(unix, feature = "sqlite"))]
pub mod sqlite;
