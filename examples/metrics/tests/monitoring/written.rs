//! Checks of the alerts and the dashboard that need no running Prometheus.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use tenure_servers::needs;

use crate::documented;
use crate::loaded::{self, DASHBOARD, RULES, RULES_TEST};

#[test]
fn alerts_and_panels_use_only_documented_metrics() {
    let documented = documented::series();
    for (file, text) in [
        ("rules", RULES),
        ("their tests", RULES_TEST),
        ("dashboard", DASHBOARD),
    ] {
        let names = loaded::names(text);
        assert!(!names.is_empty(), "{file}");
        let unknown: Vec<_> = names.iter().filter(|&&name| !documented.contains(name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn alerts_and_panels_use_only_documented_labels() {
    let queries = loaded::queries().join("\n");
    for label in ["outcome", "cause"] {
        let documented = documented::values(label);
        for text in [RULES, RULES_TEST, &queries] {
            let compared = loaded::compared(text, label);
            assert!(compared.is_subset(&documented), "{label}: {compared:?}");
        }
        assert!(!loaded::compared(RULES, label).is_empty());
    }
}

#[test]
fn the_dashboard_shows_every_metric_with_a_description() {
    let shown = loaded::names(DASHBOARD);
    for (metric, series) in documented::metrics() {
        assert!(
            series.iter().any(|name| shown.contains(name.as_str())),
            "{metric}"
        );
    }
    for panel in loaded::panels() {
        let text = |field: &str| panel[field].as_str().unwrap_or_default().to_owned();
        assert!(
            !text("title").is_empty() && text("description").ends_with('.'),
            "{panel}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert_eq!(
                query.matches("tenure_").count(),
                query.matches(r#"store=~"$store""#).count(),
                "{query}"
            );
        }
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: BTreeSet<_> = variables.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "job", "store"]));
}

#[test]
fn every_alert_has_a_test_in_which_it_fires() {
    assert!(!loaded::alerts().is_empty());
    for alert in loaded::alerts() {
        let fires = |line: &str| line.contains("alertname=") && line.contains(&format!("\"{alert}\""));
        assert!(RULES_TEST.lines().any(fires), "{alert}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    if !needs("promtool", "prometheus") {
        return;
    }
    for (verb, file) in [("check", "tenure.rules.yml"), ("test", "tenure.rules.test.yml")] {
        let mut promtool = Command::new("promtool");
        let output = promtool.args([verb, "rules"]).arg(loaded::path(file)).output();
        let output = output.expect("promtool starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    }
}
