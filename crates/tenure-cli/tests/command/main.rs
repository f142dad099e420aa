//! The `tenure` command from outside: processes, exit codes and events, on a store of their own in one file.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod completions;
mod doctor;
mod elect;
mod hold;
mod language;
mod look;
mod loss;
mod manual;
mod objects;
mod run;
mod scene;
mod schema;
mod stores;
mod terminal;
mod waiting;
mod watch;
