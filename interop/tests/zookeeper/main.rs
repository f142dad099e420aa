//! Curator, kazoo and Tenure on one ZooKeeper, in both directions: each case runs with each kind of lock that it is about.

mod cases;
mod server;
#[path = "../shared/mod.rs"]
mod shared;
mod subjects;

use std::process::ExitCode;

use shared::table::Table;

static TABLE: Table = Table {
    name: "clients of ZooKeeper",
    subjects: &subjects::SUBJECTS,
    cases: &cases::CASES,
};

fn main() -> ExitCode {
    let code = shared::run(&TABLE);
    server::stop();
    code
}
