//! The metrics as the documentation has them.

use std::collections::BTreeSet;

const TELEMETRY: &str = include_str!("../../../../crates/tenure/docs/telemetry.md");

/// A row of the table of metrics.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    histogram: bool,
}

impl Metric {
    /// What its series are called once they are exported.
    pub(crate) fn series(&self) -> Vec<String> {
        if self.histogram {
            ["bucket", "sum", "count"]
                .map(|part| format!("{}_{part}", self.name))
                .into()
        } else {
            vec![self.name.to_owned()]
        }
    }
}

pub(crate) fn metrics() -> Vec<Metric> {
    let rows = TELEMETRY.lines().filter(|line| line.starts_with("| `tenure_"));
    let metric = |row: &'static str| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        Metric {
            name: cells.next().expect("a name").trim_matches('`'),
            histogram: cells.next().expect("a kind") == "histogram",
        }
    };
    let metrics: Vec<_> = rows.map(metric).collect();
    assert!(metrics.len() > 10, "the table of metrics is found");
    metrics
}

pub(crate) fn series() -> BTreeSet<String> {
    metrics().iter().flat_map(Metric::series).collect()
}

/// The values that a label is said to have.
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
