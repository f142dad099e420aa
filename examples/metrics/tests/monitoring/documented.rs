//! The metrics as the documentation lists them.

use std::collections::{BTreeMap, BTreeSet};

const TELEMETRY: &str = include_str!("../../../../crates/tenure/docs/telemetry.md");

/// The documented metrics, each with the names of the series that it exports.
pub(crate) fn metrics() -> BTreeMap<&'static str, Vec<String>> {
    let rows = TELEMETRY.lines().filter(|line| line.starts_with("| `tenure_"));
    let metric = |row: &'static str| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let name = cells.next().expect("a name").trim_matches('`');
        let parts: &[&str] = match cells.next().expect("a kind") {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        (name, parts.iter().map(|part| format!("{name}{part}")).collect())
    };
    let metrics: BTreeMap<_, _> = rows.map(metric).collect();
    assert!(metrics.len() > 10, "the table of metrics is found");
    metrics
}

pub(crate) fn series() -> BTreeSet<String> {
    metrics().into_values().flatten().collect()
}

/// The values of a label in the documentation.
pub(crate) fn values(label: &str) -> BTreeSet<&'static str> {
    let items = TELEMETRY
        .split("\n\n")
        .flat_map(|paragraph| paragraph.split("\n- "));
    let items = items.map(|item| item.trim_start_matches("- "));
    let about = format!("`{label}` ");
    let values: BTreeSet<_> = items
        .filter(|item| item.starts_with(&about))
        .flat_map(|item| item.split('`').skip(3).step_by(2))
        .collect();
    assert!(!values.is_empty(), "the values of {label} are found");
    values
}
