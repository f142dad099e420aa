//! Tests on lock files of SQLite, with other processes.
#![cfg(unix)]

#[cfg(target_os = "linux")]
mod boots;
mod files;
mod fixture;
mod load;
mod log;
mod paths;
#[cfg(target_os = "linux")]
mod processes;
mod refusals;
mod samples;
mod sharing;
