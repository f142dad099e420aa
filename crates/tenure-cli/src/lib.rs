//! The `tenure` command as modules that tests can call. No public API: other programs use the crate `tenure`.

pub mod account;
pub mod args;
pub mod completions;
#[cfg(unix)]
pub mod guardian;
pub mod home;
#[cfg(test)]
mod machine;
pub mod manual;
pub mod messages;
pub mod output;
pub mod state_folder;
pub mod status_line;
pub mod store_choice;
pub mod store_findings;
pub mod tracing_output;
pub mod verbs;
