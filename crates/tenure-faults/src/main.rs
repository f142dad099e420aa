//! The worker process: reads its orders from the command line, and works until it is told to end.

use std::io;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match work().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure-faults: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work() -> io::Result<()> {
    let orders = std::env::args()
        .nth(1)
        .ok_or_else(|| io::Error::other("the tests start this program"))?;
    tenure_faults::work(serde_json::from_str(&orders)?).await
}
