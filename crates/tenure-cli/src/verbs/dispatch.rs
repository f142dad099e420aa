//! Calls the function of each verb, and turns its failure into a message and an exit code.

use std::future::Future;
use std::process::ExitCode;

use super::{doctor, evict, generated, inspect, schema, watch};
use crate::args::{Cli, Global, Verb};
use crate::messages::{Blame, Failure};
use crate::tracing_output::{self, Verbosity};

/// Exit code of every failure of `run` and `elect`: the codes 2 and 3 could be the command's own.
const RUN_FAILED: u8 = 125;
const USAGE: u8 = 2;
/// Exit code if the store or this machine failed.
pub const STORE_FAILED: u8 = 3;

/// Carries out the command line and returns the exit code.
pub fn dispatch(cli: &Cli) -> ExitCode {
    let global = &cli.global;
    tracing_output::listen(verbosity(global));
    let done = match &cli.verb {
        #[cfg(unix)]
        Verb::Run(run) => block_on(super::run::run(global, run)),
        #[cfg(unix)]
        Verb::Hold(hold) => block_on(super::hold::hold(global, hold)),
        #[cfg(unix)]
        Verb::Elect(elect) => block_on(super::elect::elect(global, elect)),
        #[cfg(not(unix))]
        Verb::Run(_) | Verb::Hold(_) | Verb::Elect(_) => Err(Failure::usage(
            "this verb does not work on this system",
            std::io::Error::other(
                "commands and their descendants cannot be ended surely here: use the library",
            ),
        )),
        Verb::Ls(ls) => block_on(inspect::ls(global, ls)),
        Verb::Show(show) => block_on(inspect::show(global, show)),
        Verb::Evict(evict) => block_on(evict::evict(global, evict)),
        Verb::Watch(watch) => block_on(watch::watch(global, watch)),
        Verb::Doctor => block_on(doctor::doctor(global)),
        Verb::Schema(schema) => block_on(schema::schema(global, schema)),
        Verb::Completions { shell } => generated::completions(global, *shell),
        Verb::Man { verb, out } => generated::man(global, verb.as_deref(), out.as_deref()),
    };
    let code = done.unwrap_or_else(|failure| {
        failure.print();
        match (failure.blame, &cli.verb) {
            (_, Verb::Run(_) | Verb::Elect(_)) => RUN_FAILED,
            (Blame::Usage, _) => USAGE,
            (Blame::Store, _) => STORE_FAILED,
        }
    });
    ExitCode::from(code)
}

fn verbosity(global: &Global) -> Verbosity {
    match (global.quiet, global.verbose) {
        (true, _) => Verbosity::Nothing,
        (_, true) => Verbosity::Everything,
        _ => Verbosity::Warnings,
    }
}

/// Fails unless six descriptors are free, as many as the runtime opens: tokio panics if it finds none for its signals.
#[cfg(unix)]
fn find_descriptors() -> std::io::Result<()> {
    let pairs = (0..3).map(|_| std::os::unix::net::UnixStream::pair());
    pairs.collect::<std::io::Result<Vec<_>>>().map(drop)
}

/// Runs a verb to its end, on a runtime with one thread.
fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let failed = |error| Failure::system("cannot set up timers and sockets", error);
    #[cfg(unix)]
    find_descriptors().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let done = runtime.block_on(verb);
    // Each verb has waited for its calls to the store, up to a time limit. Do not wait longer for unfinished calls.
    runtime.shutdown_background();
    done
}
