//! Sends each verb on its way, and turns its failure into words and an exit code.

use std::future::Future;
use std::process::ExitCode;

use super::{doctor, evict, generated, look, schema, watch};
use crate::args::{Cli, Global, Verb};
use crate::tracing_output::{self, Verbosity};
use crate::words::{Blame, Failure};

/// What a failure of `run` or `elect` exits with, whatever it is: 2 and 3 could be the command's own.
const RUN_FAILED: u8 = 125;
const USAGE: u8 = 2;
/// The store or this machine failed.
pub const STORE_FAILED: u8 = 3;

/// Does what the command line says, and gives the exit code.
pub fn obey(cli: &Cli) -> ExitCode {
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
        Verb::Ls(ls) => block_on(look::ls(global, ls)),
        Verb::Show(show) => block_on(look::show(global, show)),
        Verb::Evict(evict) => block_on(evict::evict(global, evict)),
        Verb::Watch(watch) => block_on(watch::watch(global, watch)),
        Verb::Doctor => block_on(doctor::doctor(global)),
        Verb::Schema(schema) => block_on(schema::schema(global, schema)),
        Verb::Completions { shell } => generated::completions(global, *shell),
        Verb::Man { verb } => generated::man(global, verb.as_deref()),
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

/// Runs a verb on this thread: nothing here is worth a second one.
fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot set up timers and sockets", error))?;
    let done = runtime.block_on(verb);
    // What is still under way at the end has had its time.
    runtime.shutdown_background();
    done
}
