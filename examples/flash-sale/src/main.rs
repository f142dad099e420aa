//! A flash sale: a hundred items, three shops in separate processes, and more buyers than items.

#[path = "../../http.rs"]
mod http;
mod load;
#[path = "../../program.rs"]
mod program;
mod shop;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::process::ExitCode;

use tenure::{Settings, parse_duration};

/// Any error. This example treats all errors alike.
type Fault = Box<dyn Error + Send + Sync>;

const USAGE: &str = "usage: flash-sale shop ADDRESS DATABASE [LEASE]
       flash-sale load SHOP,SHOP,… [TRIAL…]

The lock store is TENURE_URL (redis://127.0.0.1:6379), and LEASE is 30s if it is not given. The trials, all of which run if none is
given: unlocked, locked, fenced, striped, locked-paused, fenced-paused.";

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Fault> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["shop", address, database] => shop::serve(address, database, Settings::DEFAULT_LEASE).await,
        ["shop", address, database, lease] => shop::serve(address, database, parse_duration(lease)?).await,
        ["load", shops, trials @ ..] => {
            let asked_to_stop = stop::signals()?;
            tokio::select! {
                done = load::run(shops, trials) => done,
                // The signal drops the load, which then sends CONT to the shop that it has stopped, if any.
                signal = asked_to_stop => Err(signal.into()),
            }
        }
        _ => Err(format!("no such arguments\n\n{USAGE}").into()),
    }
}
