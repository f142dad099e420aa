//! The alerts and the dashboard: against the documentation, against `promtool`, and on a real Prometheus.
#![cfg(unix)]

mod documented;
#[path = "../../../http.rs"]
mod http;
mod live;
mod loaded;
#[path = "../../../scene.rs"]
mod scene;
mod written;

#[test]
fn a_redis_may_be_its_lock_store() {
    scene::assert_speaks_redis(env!("CARGO_BIN_EXE_metrics-export"), &["127.0.0.1:0"]);
}
