//! Compares the alerts and the dashboard with the documentation, and runs them in `promtool` and a real Prometheus.
#![cfg(unix)]

mod documented;
#[path = "../../../fixture.rs"]
mod fixture;
#[path = "../../../http.rs"]
mod http;
mod live;
mod loaded;
mod written;

#[test]
fn redis_works_as_the_lock_store() {
    fixture::assert_speaks_redis(env!("CARGO_BIN_EXE_metrics-export"), &["127.0.0.1:0"]);
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(env!("CARGO_BIN_EXE_metrics-export"));
}
