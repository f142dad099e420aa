//! The `tenure` command in parts that tests can reach. Not a library for others: use the crate `tenure`.

pub mod args;
pub mod completions;
#[cfg(unix)]
pub mod guardian;
pub mod output;
pub mod store_choice;
pub mod verbs;
pub mod words;
