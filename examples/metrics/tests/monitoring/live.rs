//! Starts the example and a real Prometheus that scrapes it and has loaded the alerts. Sends the queries of the Grafana
//! dashboard to this Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::Value;
use tenure_servers::needs;

use crate::fixture::{Fixture, Process, wait_for};
use crate::{documented, http, loaded};

/// Series that rise above zero while the example's workers run.
const HAPPENS: &[&str] = &[
    "tenure_local_handovers_total",
    "tenure_lost_total{cause=\"evicted\"}",
    "tenure_renewals_total{outcome=\"renewed\"}",
    "tenure_acquisitions_total{outcome=\"acquired\"}",
    "tenure_acquisitions_total{outcome=\"busy\"}",
    "tenure_acquisitions_total{outcome=\"timeout\"}",
    "tenure_acquisitions_total{outcome=\"cancelled\"}",
];

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// Starts the example, which exports metrics. Returns its process and its address.
fn start_example(fixture: &Fixture) -> (Process, String) {
    let address = free_address();
    let mut command = fixture.command(env!("CARGO_BIN_EXE_metrics-export"));
    command.arg(&address);
    let example = Process::start(command);
    assert_eq!(
        example.line_with("exporting on "),
        format!("exporting on http://{address}/metrics")
    );
    (example, address)
}

/// Starts a Prometheus that scrapes `exporter` and has loaded the alerts. Returns its process and address.
fn start_prometheus(fixture: &Fixture, exporter: &str) -> (Process, String) {
    let rules = loaded::path("tenure.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
         rule_files: [{rules:?}]\n\
         scrape_configs: [{{job_name: shop, static_configs: [{{targets: [{exporter:?}]}}]}}]\n"
    );
    fs::write(fixture.path("prometheus.yml"), config).expect("the folder is ours");
    let mut command = fixture.command("prometheus");
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg("--web.listen-address=127.0.0.1:0");
    let prometheus = Process::start(command);
    let mut address = None;
    wait_for("Prometheus is ready", || {
        let log = fs::read_to_string(fixture.path("stderr")).expect("it is being written");
        let line = log.lines().find(|line| line.contains("msg=\"Listening on\""));
        address = line
            .and_then(|line| line.rsplit_once("address="))
            .map(|(_, address)| address.to_owned());
        address.is_some() && log.contains("Server is ready to receive web requests")
    });
    (prometheus, address.expect("it listens"))
}

/// The `data` of a reply of Prometheus's API.
fn api(address: &str, path: &str) -> Value {
    let reply = http::ask(address, &format!("GET /api/v1/{path}"), "", "");
    let mut answer: Value = serde_json::from_str(&reply.body).expect("it answers in JSON");
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"].take()
}

/// The current samples of a PromQL expression.
fn query(address: &str, expression: &str) -> Vec<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let data = api(address, &format!("query?query={encoded}"));
    data["result"].as_array().expect("samples").clone()
}

/// The values of a label in the samples of a PromQL expression.
fn labels(prometheus: &str, label: &str, expression: &str) -> BTreeSet<String> {
    let samples = query(prometheus, &format!("count by ({label}) ({expression})"));
    let values = samples
        .iter()
        .filter_map(|sample| sample["metric"][label].as_str());
    values.map(str::to_owned).collect()
}

/// The names of Tenure's series that Prometheus has read.
fn series(prometheus: &str) -> BTreeSet<String> {
    labels(prometheus, "__name__", r#"{__name__=~"tenure_.+"}"#)
}

/// Whether a PromQL expression has a finite sample.
fn shows(prometheus: &str, expression: &str) -> bool {
    let samples = query(prometheus, expression);
    let value = |sample: &Value| {
        sample["value"][1]
            .as_str()
            .and_then(|text| text.parse::<f64>().ok())
    };
    samples.iter().filter_map(value).any(f64::is_finite)
}

fn alerts(prometheus: &str) -> Vec<Value> {
    let groups = api(prometheus, "rules?type=alert");
    let groups = groups["groups"].as_array().expect("groups").iter();
    groups
        .flat_map(|group| group["rules"].as_array().expect("rules").clone())
        .collect()
}

/// Asserts that all alert rules are evaluated without an error, and have a severity, a summary and a description.
fn assert_healthy(prometheus: &str) {
    wait_for("the rules are evaluated", || {
        alerts(prometheus).iter().all(|rule| rule["health"] != "unknown")
    });
    let rules = alerts(prometheus);
    let names: Vec<_> = rules.iter().filter_map(|rule| rule["name"].as_str()).collect();
    assert_eq!(names, loaded::alerts());
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["info", "warning", "critical"].contains(&severity), "{rule}");
        for annotation in ["summary", "description"] {
            assert!(rule["annotations"][annotation].is_string(), "{rule}");
        }
    }
}

/// Asserts that the histogram of waits has buckets from 100 µs to 60 s.
fn assert_buckets(address: &str) {
    let bounds = labels(address, "le", "tenure_wait_seconds_bucket");
    let bounds: Vec<f64> = bounds.iter().filter_map(|bound| bound.parse().ok()).collect();
    for bound in [0.0001, 60.0, f64::INFINITY] {
        assert!(bounds.contains(&bound), "{bound} s: {bounds:?}");
    }
}

/// Asserts that an eviction raises its alert, and that the alert names the affected client.
fn assert_an_eviction_is_told(address: &str, exporter: &str) {
    let mut raised = Value::Null;
    wait_for("an eviction raises its alert", || {
        let rules = alerts(address);
        let rule = rules.iter().find(|rule| rule["name"] == "TenureLocksEvicted");
        raised = rule.map_or(Value::Null, |rule| rule["alerts"][0].clone());
        raised["state"] == "firing"
    });
    assert_eq!(
        raised["annotations"]["summary"],
        format!("Locks of {exporter} on sqlite were taken away")
    );
}

#[test]
fn the_example_stops_on_sigterm_and_frees_its_address() {
    for signal in [Signal::INT, Signal::TERM] {
        let fixture = Fixture::new();
        let (mut example, address) = start_example(&fixture);
        example.send(signal);
        assert_eq!(example.exit_code(), 0);
        assert!(TcpStream::connect(&address).is_err(), "{address} is free again");
    }
}

#[test]
fn prometheus_reads_every_metric_and_raises_an_alert() {
    if !needs("prometheus", "prometheus") {
        return;
    }
    let fixture = Fixture::new();
    let (_example, exporter) = start_example(&fixture);
    let (_prometheus, address) = start_prometheus(&fixture, &exporter);

    let documented = documented::series();
    wait_for("every documented metric has series", || {
        series(&address).is_superset(&documented)
    });
    assert_eq!(series(&address), documented, "and no other is exported");
    assert_buckets(&address);
    for query in loaded::queries() {
        wait_for(&query, || shows(&address, &query));
    }
    for happened in HAPPENS {
        wait_for(happened, || shows(&address, &format!("{happened} > 0")));
    }
    assert_healthy(&address);
    assert_an_eviction_is_told(&address, &exporter);
}
