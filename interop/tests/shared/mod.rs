//! What the test programs have in common: a test for each case, kind of lock and client, and a table of them in
//! docs/interop.md.
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod cases;
#[path = "../../../examples/fixture.rs"]
pub(crate) mod examples;
pub(crate) mod fixture;
pub(crate) mod number;
pub(crate) mod subject;
pub(crate) mod table;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Builder;

use fixture::{LIMIT, Setting, within};
use table::Table;

/// The number of tests at a time. Most of them wait for leases, wake-ups or other processes.
const THREADS: usize = 6;

/// Runs the table's cases. After a run of all cases without failures, `TENURE_INTEROP_TABLE=write` writes the table.
pub(crate) fn run(table: &'static Table) -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let mut trials = vec![Trial::test("the_table_in_the_docs_is_up_to_date", || {
        assert!(table.is_up_to_date(), "run `cargo xtask interop-table`");
        Ok(())
    })];
    for subject in table.subjects {
        for &driver in subject.drivers {
            for case in table.cases.iter().filter(|case| (case.is_about)(subject, driver)) {
                let name = format!("{}::{driver:?}::{}", subject.path(), case.name);
                let run = move || {
                    let runtime = Builder::new_multi_thread()
                        .worker_threads(2)
                        .enable_all()
                        .build()?;
                    runtime.block_on(within(
                        LIMIT * 3,
                        "the end of the test",
                        (case.run)(Setting { subject, driver }),
                    ));
                    Ok(())
                };
                trials.push(Trial::test(name, run));
            }
        }
    }
    let writes = std::env::var("TENURE_INTEROP_TABLE").is_ok_and(|value| value == "write");
    if writes {
        trials.remove(0);
    }
    let conclusion = libtest_mimic::run(&args, trials);
    if writes && !conclusion.has_failed() && conclusion.num_filtered_out == 0 {
        table.write();
    }
    conclusion.exit_code()
}
