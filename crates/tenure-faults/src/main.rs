//! The worker process: reads its orders from the command line, and works until it is told to end.
//! What it does is the library's.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match tenure_faults::work(tenure_faults::Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure-faults: {error}");
            ExitCode::FAILURE
        }
    }
}
