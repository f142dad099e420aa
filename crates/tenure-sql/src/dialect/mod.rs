//! The databases that can store claims. The claim logic, which does not depend on the database, is in `claims/`.

pub mod sqlite;
