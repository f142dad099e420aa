//! A shop that charges once per order, even if the same request comes several times and through several servers.

mod orders;
mod place;
#[path = "../../program.rs"]
mod program;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use orders::Orders;
use place::{PATIENCE, Shop, place_order};

const USAGE: &str = "usage: web-once [ADDRESS [DATABASE]]

Takes orders at http://ADDRESS/orders (127.0.0.1:8080), and charges each of them once in DATABASE (shop.db). The lock store is
TENURE_URL, or a SQLite file in the temporary folder.";

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let database = args.next().unwrap_or_else(|| "shop.db".to_owned());

    let asked_to_stop = stop::signals()?;
    let locks = tenure::connect(&program::store_or_file("web-once-locks.db")).await?;
    let shop = Shop {
        locks: locks.clone(),
        orders: Orders::open(&database)?,
        placing: TaskTracker::new(),
    };
    let placing = shop.placing.clone();
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let routes = Router::new().route("/orders", post(place_order)).with_state(shop);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async { _ = asked_to_stop.await })
        .await?;
    // The tasks of clients that have disconnected may still charge. Closing the client would end their locks, and stop the
    // charges half-way. A task that waits for its lock ends after `PATIENCE`.
    placing.close();
    _ = timeout(2 * PATIENCE, placing.wait()).await;
    // The last step closes the client, which releases its locks. Otherwise they would stay until their leases end. If
    // this fails, they do, which is no failure of this program.
    if let Err(error) = locks.close(Duration::from_secs(5)).await {
        eprintln!("warning: {error}");
    }
    Ok(())
}
