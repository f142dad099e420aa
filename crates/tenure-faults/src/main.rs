//! Worker process of a run with faults: reads its arguments as JSON from the command line, and works until SIGTERM.

use std::io;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = std::env::args().nth(1);
    let args = args.ok_or_else(|| io::Error::other("the tests start this program"))?;
    tenure_faults::work(serde_json::from_str(&args)?).await
}
