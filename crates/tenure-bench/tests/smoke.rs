//! Every workload runs to its end and writes its rows. Nothing here judges how fast it was.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tenure_servers::needs;

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

/// Which clients take part is for the tests of `plan.rs`.
fn check(workload: &str, store: &str) {
    if store == "redis" && !needs("redis-server", "redis-server") {
        return;
    }
    let (rows, printed) = rows(workload, store);
    assert!(rows.len() >= 2, "{printed}");
    for row in &rows {
        assert_eq!(
            (&row["workload"], &row["store"]),
            (&workload.into(), &store.into())
        );
        assert!(row["rate_per_s"].is_f64(), "{row}");
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        assert!(row["max_us"].as_f64() >= row["p50_us"].as_f64(), "{row}");
        if workload == "solo" || workload == "many" {
            assert_eq!(row["handovers_per_s"], 0.0, "nobody else holds these keys: {row}");
        }
        let names = [workload, store, row["client"].as_str().unwrap()];
        assert!(cells(&printed).any(|cells| cells[..3] == names), "{printed}");
    }
}

/// The rows of the printed tables that have more than three columns.
fn cells(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter(|cells| cells.len() > 3)
}

#[test]
fn workloads_of_one_process_run_on_every_store() {
    for workload in ["solo", "many", "hot"] {
        for store in ["memory", "sqlite", "redis"] {
            check(workload, store);
        }
    }
}

#[test]
fn processes_that_share_a_store_run_on_sqlite_and_redis() {
    for workload in ["pair", "hot-processes", "lone-waiter"] {
        for store in ["sqlite", "redis"] {
            check(workload, store);
        }
    }
}

#[test]
fn a_server_can_be_away_and_every_round_trip_takes_its_time() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = bench(dir.path(), &["--workload", "solo", "--distance", "away"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("a millisecond or two away"), "{text}");
    let rows: Vec<_> = cells(&text).filter(|row| row[..2] == ["solo", "redis"]).collect();
    // rlock asks for time once more, but nobody for less.
    for client in ["tenure", "rslock", "rlock", "bare"] {
        let row = rows.iter().find(|row| row[2] == client);
        let rate: f64 = row.and_then(|row| row[3].parse().ok()).expect("a rate");
        assert!(
            rate > 0.0 && rate <= 250.0,
            "two round trips of 2 ms: {rate}, {text}"
        );
    }
    assert!(!text.contains("solo | memory"), "it has no server: {text}");
}

#[test]
fn a_server_can_have_a_core_of_its_own_if_there_are_two() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["--workload", "hot-processes", "--distance", "apart"];
    let output = bench(dir.path(), &args);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert!(output.status.success(), "{said}");
        assert!(text.contains("on a core of its own"), "{text}");
        let mut rows = cells(&text);
        assert!(
            rows.any(|row| row[..3] == ["hot-processes", "redis", "tenure"]),
            "{text}"
        );
    } else {
        assert!(said.contains("needs two cores"), "{said}");
    }
}

#[test]
fn several_processes_are_left_out_where_nothing_is_shared_and_the_reason_is_printed() {
    for workload in ["pair", "hot-processes", "lone-waiter"] {
        let (rows, printed) = rows(workload, "memory");
        assert_eq!(rows, [] as [Value; 0]);
        let said = format!("{workload} on memory is left out: memory is not shared between processes.");
        assert!(printed.contains(&said), "{printed}");
    }
}

#[test]
fn a_server_that_is_not_installed_is_named_with_what_to_do_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .args(["quick", "--store", "memory,redis", "--workload", "solo"])
        .env("PATH", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`redis-server` is not installed"), "{said}");
    assert!(said.contains("`--store memory,sqlite` does without"), "{said}");
    assert!(!said.contains("solo on memory"), "{said}");
}

#[test]
fn held_locks_survive_and_are_measured() {
    for store in ["memory", "redis"] {
        if store == "redis" && !needs("redis-server", "redis-server") {
            continue;
        }
        let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
            .args(["held", "--store", store, "--locks", "40", "--lease-ms", "1000"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(&format!("40 locks on {store}")), "{printed}");
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

/// Compares this build on `workload` to a program that answers every call with these lines of a shell.
fn against(workload: &str, old: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("old");
    let script =
        format!("#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --json ] && json=$2; shift; done\n{old}\n");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .arg("against")
        .arg(program)
        .args([
            "--workload",
            workload,
            "--store",
            "memory",
            "--rounds",
            "2",
            "--round-ms",
            "30",
        ])
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), printed.concat())
}

#[test]
fn a_build_that_is_slower_than_the_old_one_fails() {
    let rates = |rate| format!(r#"echo '{{"client":"tenure","rate_per_s":{rate}}}' > "$json""#);
    let (code, printed) = against("solo", &rates("1e12"));
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("slower") && printed.contains("1 rows are slower"),
        "{printed}"
    );
    let (code, printed) = against("solo", &rates("1"));
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("solo") && !printed.contains("slower"),
        "{printed}"
    );
}

#[test]
fn a_workload_that_the_old_build_does_not_have_is_left_out() {
    let (code, printed) = against("hot", "exit 2");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("hot on memory is left out: the old build does not have it"),
        "{printed}"
    );
}

#[test]
fn an_old_build_that_fails_is_named_with_its_error() {
    let (code, printed) = against("solo", "echo no server >&2; exit 1");
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("no server"), "{printed}");
}
