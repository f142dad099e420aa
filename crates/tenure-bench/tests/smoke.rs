//! Every workload runs to its end and writes its rows. Nothing here judges how fast it was.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const FIELDS: [&str; 10] = [
    "workload",
    "store",
    "client",
    "rate_per_s",
    "handovers_per_s",
    "p50_us",
    "p99_us",
    "max_us",
    "min_share",
    "rounds",
];

/// A run of two rounds of 30 ms; all its temporary files lie in `dir`.
fn bench(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .args(["quick", "--rounds", "2", "--round-ms", "30", "--dir"])
        .arg(dir)
        .args(args)
        .output()
        .expect("the bench starts")
}

/// Runs one workload on one store, and gives out its rows and what it printed.
fn rows(workload: &str, store: &str) -> (Vec<Value>, String) {
    let dir = tempfile::tempdir().unwrap();
    let (files, json) = (dir.path().join("files"), dir.path().join("rows.json"));
    std::fs::create_dir(&files).unwrap();
    let json_arg = json.to_str().unwrap();
    let args = ["--workload", workload, "--store", store, "--json", json_arg];
    let output = bench(&files, &args);
    let printed = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let left: Vec<_> = std::fs::read_dir(&files).unwrap().collect();
    assert!(left.is_empty(), "{left:?} was left behind");
    let text = std::fs::read_to_string(json).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (rows.collect(), printed)
}

fn check(workload: &str, store: &str, clients: &[&str]) {
    let (rows, printed) = rows(workload, store);
    let found: Vec<&str> = rows.iter().map(|row| row["client"].as_str().unwrap()).collect();
    assert_eq!(found, clients);
    for row in &rows {
        let fields = row.as_object().unwrap();
        assert_eq!(fields.len(), FIELDS.len(), "{row}");
        assert!(FIELDS.iter().all(|field| fields.contains_key(*field)), "{row}");
        assert_eq!(row["workload"], workload);
        assert_eq!(row["store"], store);
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        assert!(row["max_us"].as_f64() >= row["p50_us"].as_f64(), "{row}");
        if workload == "solo" || workload == "many" {
            assert_eq!(row["handovers_per_s"], 0.0, "nobody else holds these keys: {row}");
        }
        let line = printed.lines().find(|line| {
            let words: Vec<_> = line.split_whitespace().take(3).collect();
            words == [workload, store, row["client"].as_str().unwrap()]
        });
        assert!(line.is_some(), "{printed}");
    }
}

#[test]
fn solo_runs_on_every_store() {
    check("solo", "memory", &["tenure", "bare"]);
    check("solo", "sqlite", &["tenure", "bare"]);
}

#[test]
fn many_runs_on_every_store() {
    check("many", "memory", &["tenure", "bare"]);
    check("many", "sqlite", &["tenure", "bare"]);
}

#[test]
fn hot_runs_on_every_store_with_passing_on_and_off() {
    check("hot", "memory", &["tenure", "tenure-no-passing", "bare"]);
    check("hot", "sqlite", &["tenure", "tenure-no-passing", "bare"]);
}

#[test]
fn hot_processes_runs_between_processes_that_share_a_file() {
    check("hot-processes", "sqlite", &["tenure", "bare"]);
}

#[test]
fn hot_processes_is_left_out_where_nothing_is_shared_and_the_reason_is_printed() {
    let (rows, printed) = rows("hot-processes", "memory");
    assert_eq!(rows, [] as [Value; 0]);
    let said = "hot-processes on memory is left out: memory is not shared between processes.";
    assert!(printed.contains(said), "{printed}");
}

#[test]
fn the_markdown_has_the_machine_and_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(
        dir.path(),
        &["--workload", "solo", "--store", "memory", "--markdown"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    for start in [
        "| processor |",
        "| SQLite |",
        "| solo | memory | tenure |",
        "| solo | memory | bare |",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(start)),
            "{start} in {text}"
        );
    }
}

#[test]
fn a_file_for_rows_that_cannot_be_written_is_known_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), &["--json", "/nowhere/rows.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        !String::from_utf8(output.stderr)
            .unwrap()
            .contains("solo on memory")
    );
}
