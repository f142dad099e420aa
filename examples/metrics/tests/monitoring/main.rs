//! The alerts and the dashboard: against the documentation, against `promtool`, and on a real Prometheus.
//! Not here: when each alert fires, which is `monitoring/tenure.rules.test.yml`.
#![cfg(unix)]

mod documented;
mod http;
mod live;
mod loaded;
mod promtool;
#[path = "../../../scene.rs"]
mod scene;
mod written;
