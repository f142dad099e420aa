//! Tests of the `tenure` binary: processes, exit codes and output, each test with its own store file.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod completions;
mod doctor;
mod elect;
mod fixture;
mod hold;
mod inspect;
mod language;
mod loss;
mod manual;
mod objects;
mod run;
mod schema;
mod start;
mod stores;
mod terminal;
mod users;
mod waiting;
mod watch;
