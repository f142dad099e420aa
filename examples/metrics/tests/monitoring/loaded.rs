//! The files with the alerts and the dashboard, and what they contain.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

pub(crate) const RULES: &str = include_str!("../../../../monitoring/tenure.rules.yml");
pub(crate) const RULES_TEST: &str = include_str!("../../../../monitoring/tenure.rules.test.yml");
pub(crate) const DASHBOARD: &str = include_str!("../../../../monitoring/dashboard.json");

pub(crate) fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring");
    PathBuf::from(folder)
        .join(name)
        .canonicalize()
        .expect("the file is there")
}

pub(crate) fn alerts() -> Vec<&'static str> {
    let names = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.collect()
}

/// The panels of the dashboard, without the rows that group them.
pub(crate) fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels").iter();
    panels.filter(|panel| panel["type"] != "row").cloned().collect()
}

/// The dashboard's expressions as Grafana sends them, with values in place of variables.
pub(crate) fn queries() -> Vec<String> {
    let panels = panels();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("a panel asks for something"));
    let filled = targets.map(|target| {
        let query = target["expr"].as_str().expect("an expression");
        let query = query.replace("$__rate_interval", "5s").replace("$job", ".*");
        query.replace("$store", "sqlite")
    });
    filled.collect()
}

/// Every word in a text that starts with `tenure_`, as our metrics do.
pub(crate) fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tenure_")).collect()
}

/// The values with which a text of PromQL compares a label.
pub(crate) fn compared<'a>(text: &'a str, label: &str) -> BTreeSet<&'a str> {
    let after = text.split(label).skip(1);
    let quoted = after.filter_map(|rest| {
        let rest = rest.trim_start_matches(['=', '~', '!']);
        rest.strip_prefix('"')?.split('"').next()
    });
    quoted.flat_map(|values| values.split('|')).collect()
}
