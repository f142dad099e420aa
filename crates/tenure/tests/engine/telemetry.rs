//! The metrics of a client match the table in `docs/telemetry.md`, and count what happened.

use std::collections::{BTreeMap, BTreeSet};

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tenure::Settings;
use tenure::telemetry::names;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, evict, pass, served, settle};

/// The rows of the documented table: name, kind and labels.
fn documented() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let table = include_str!("../../docs/telemetry.md");
    let rows = table.lines().filter(|line| line.starts_with("| `tenure_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(',').map(|label| label.trim().replace('`', ""));
        (cells[1].replace('`', ""), cells[2].to_owned(), labels.collect())
    })
    .collect()
}

type Series = (String, Vec<(String, String)>);

fn recorded(snapshotter: &Snapshotter) -> BTreeMap<Series, (MetricKind, DebugValue)> {
    let entries = snapshotter.snapshot().into_vec().into_iter();
    entries
        .map(|(key, _, _, value)| {
            let (kind, key) = key.into_parts();
            let label = |label: &metrics::Label| (label.key().to_owned(), label.value().to_owned());
            let labels = key.labels().map(label).collect();
            ((key.name().to_owned(), labels), (kind, value))
        })
        .collect()
}

/// Runs `work` in paused time, and returns the metrics that it records.
fn record(work: impl AsyncFnOnce()) -> Snapshotter {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(work());
    });
    snapshotter
}

/// Uses locks in all the ways that record a metric.
async fn live(settings: Settings) {
    let fixture = Fixture::new();
    let (client, backend) = fixture.faulty_client_with(settings);
    let mutex = client.mutex("k");
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.lock_within(MS).await.is_err());
    let [next, last, gone] = [(); 3].map(|()| tokio::spawn(mutex.lock()));
    settle().await;
    gone.abort();
    guard.unlock().await.unwrap();
    served(next).await.unlock().await.unwrap();
    let guard = served(last).await;
    backend.control(Verb::Renew).fail_before(1);
    pass(12 * SECOND).await;
    evict(&fixture.client(), "k").await;
    guard.lost().await;
    let unlucky = client.mutex("l").lock().await.unwrap();
    backend.control(Verb::Release).fail_before(usize::MAX);
    drop(unlucky);
    pass(60 * SECOND).await;
}

#[test]
fn recorded_metrics_match_the_documented_table() {
    let snapshotter = record(async || live(Settings::default()).await);
    let seen: BTreeSet<_> = recorded(&snapshotter)
        .into_iter()
        .map(|((name, labels), (kind, _))| {
            let labels: BTreeSet<_> = labels.into_iter().map(|(label, _)| label).collect();
            (name, format!("{kind:?}").to_lowercase(), labels)
        })
        .collect();
    assert_eq!(seen, documented());
}

#[test]
fn every_outcome_is_counted_once() {
    let seen = recorded(&record(async || live(Settings::default()).await));
    let counted = |name: &str, label: &str, value: &str| {
        let labels = vec![
            ("store".to_owned(), "memory".to_owned()),
            (label.to_owned(), value.to_owned()),
        ];
        let series = seen.get(&(name.to_owned(), labels));
        match &series.unwrap_or_else(|| panic!("{name} {value}")).1 {
            DebugValue::Counter(count) => *count,
            DebugValue::Histogram(values) => values.len() as u64,
            DebugValue::Gauge(_) => panic!("{name} is a gauge"),
        }
    };
    for (outcome, times) in [
        ("acquired", 4),
        ("busy", 1),
        ("timeout", 1),
        ("cancelled", 1),
        ("failed", 0),
    ] {
        let acquisitions = counted(names::ACQUISITIONS, "outcome", outcome);
        assert_eq!(acquisitions, times, "{outcome}");
        assert_eq!(counted(names::WAIT, "outcome", outcome), times, "{outcome}");
    }
    assert_eq!(counted(names::LOST, "cause", "evicted"), 1);
    assert_eq!(counted(names::RENEWALS, "outcome", "failed"), 1);
    assert!(counted(names::RENEWALS, "outcome", "renewed") >= 1);
    let plain = |name: &str| &seen[&(name.to_owned(), vec![("store".to_owned(), "memory".to_owned())])].1;
    assert!(matches!(plain(names::LOCAL_HANDOVERS), DebugValue::Counter(1)));
    assert!(matches!(plain(names::UNRETURNED), DebugValue::Counter(1)));
    for gauge in [names::HELD, names::WAITERS] {
        let value = plain(gauge);
        assert_eq!(value, &DebugValue::Gauge(0.0.into()), "{gauge}");
    }
    let DebugValue::Histogram(margins) = plain(names::MARGIN) else {
        panic!("the margin is a histogram")
    };
    let within = |margin: f64| margin > 10.0 && margin < 29.4;
    assert!(margins.iter().all(|margin| within(margin.0)), "{margins:?}");
}

#[test]
fn keys_are_labels_only_if_enabled() {
    let keys = |settings: Settings| -> BTreeSet<String> {
        let seen = recorded(&record(async || live(settings).await));
        let labels = seen.into_keys().flat_map(|(_, labels)| labels);
        labels
            .filter(|(label, _)| label == "key")
            .map(|(_, key)| key)
            .collect()
    };
    assert!(keys(Settings::default()).is_empty());
    let asked = keys(Settings::default().key_labels(true));
    assert_eq!(asked, ["k", "l"].map(str::to_owned).into());
}
