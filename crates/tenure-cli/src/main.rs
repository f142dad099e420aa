//! The `tenure` command: parses the command line and runs the verb. The same binary also runs as the guardian, which
//! kills a command at its deadline, and as the stub, which becomes the command.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use tenure_cli::args::{self, BadUsage};
use tenure_cli::{output, verbs};

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = tenure_cli::guardian::run_helper() {
        return code;
    }
    #[cfg(unix)]
    if let Err(error) = tenure_cli::guardian::handle_file_size_limit() {
        let _ = writeln!(
            io::stderr(),
            "warning: a limit of file sizes may end tenure: {error}"
        );
    }
    match args::parse(env::args_os()) {
        Ok(cli) => verbs::dispatch(&cli),
        Err(BadUsage { exit_code: 0, text }) => match output::print(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                failure.print();
                ExitCode::from(verbs::STORE_FAILED)
            }
        },
        Err(BadUsage { exit_code, text }) => {
            // If stderr has no reader, the exit code still reports the error.
            let _ = io::stderr().write_all(text.as_bytes());
            ExitCode::from(exit_code)
        }
    }
}
