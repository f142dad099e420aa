//! The databases that can store claims. The claim logic that they share is in `claims/`.

pub mod sqlite;
