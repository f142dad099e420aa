//! Clients of other projects and Tenure on one lock table, in both directions, on PostgreSQL and on MariaDB: each case runs
//! with each layout that it is about.

mod cases;
mod server;
#[path = "../shared/mod.rs"]
mod shared;
mod subjects;

use std::process::ExitCode;

use shared::table::Table;

static TABLE: Table = Table {
    name: "clients of databases",
    subjects: &subjects::SUBJECTS,
    cases: &cases::CASES,
};

fn main() -> ExitCode {
    let code = shared::run(&TABLE);
    server::stop();
    code
}
