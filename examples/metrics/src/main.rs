//! Exports the metrics of a program's locks over HTTP, for Prometheus.

#[path = "../../program.rs"]
mod program;
mod shop;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;

/// Upper bounds of the histograms' buckets in seconds, from an unlock in memory to the longest time for which a lock
/// should be held.
///
/// Buckets instead of quantiles, because only buckets of several processes can be added up.
const BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    20.0, 30.0, 60.0,
];

const USAGE: &str = "usage: metrics-export [ADDRESS]

Exports the metrics of some workers' locks for Prometheus at http://ADDRESS/metrics (127.0.0.1:9464). The lock store is
TENURE_URL, or memory.";

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let address = std::env::args().nth(1);
    let address: SocketAddr = address.as_deref().unwrap_or("127.0.0.1:9464").parse()?;

    // Installed first: a client registers its metrics once, with the recorder that is installed then.
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets(BUCKETS)?
        .install()?;

    let asked_to_stop = stop::signals()?;
    let store = program::named_store().unwrap_or_else(|| "memory:".to_owned());
    let client = tenure::connect(&store).await?;
    println!("exporting on http://{address}/metrics");
    let outcome = tokio::select! {
        outcome = shop::open(&client) => outcome.map_err(Into::into),
        _ = asked_to_stop => Ok(()),
    };
    // The last step closes the client, which releases its locks. Otherwise they would stay until their leases end.
    let closed = client.close(Duration::from_secs(5)).await;
    outcome.and(closed.map_err(Into::into))
}
