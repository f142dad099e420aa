//! The `tenure` command in parts that tests can reach. Not a library for others: use the crate `tenure`.

pub mod account;
pub mod args;
pub mod completions;
#[cfg(unix)]
pub mod guardian;
#[cfg(test)]
mod machine;
pub mod manual;
pub mod output;
pub mod status_line;
pub mod store_choice;
pub mod store_findings;
pub mod tracing_output;
pub mod verbs;
pub mod words;
