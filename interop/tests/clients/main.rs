//! Clients of other projects and Tenure on one Redis, in both directions: each case runs with each kind of lock that it
//! is about.

mod cases;
mod redis;
#[path = "../shared/mod.rs"]
mod shared;
mod subjects;

use std::process::ExitCode;

use shared::table::Table;

static TABLE: Table = Table {
    name: "clients of Redis",
    subjects: &subjects::SUBJECTS,
    cases: &cases::CASES,
};

fn main() -> ExitCode {
    shared::run(&TABLE)
}
