//! Every workload runs to its end and writes its rows. Nothing here judges how fast it was.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tenure_servers::needs;

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

/// Every workload on Redis; `switched` is Tenure with passing off, where it has a row.
fn check_on_redis(workload: &str, switched: &[&str]) {
    if needs("redis-server", "redis-server") {
        let clients = [&["tenure"], switched, &["rslock", "rlock", "bare"]].concat();
        check(workload, "redis", &clients);
    }
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
    check_on_redis("solo", &[]);
}

#[test]
fn many_runs_on_every_store() {
    check("many", "memory", &["tenure", "bare"]);
    check("many", "sqlite", &["tenure", "bare"]);
    check_on_redis("many", &[]);
}

#[test]
fn hot_runs_on_every_store_with_passing_on_and_off() {
    check("hot", "memory", &["tenure", "tenure-no-passing", "bare"]);
    check("hot", "sqlite", &["tenure", "tenure-no-passing", "bare"]);
    check_on_redis("hot", &["tenure-no-passing"]);
}

#[test]
fn hot_processes_runs_between_processes_that_share_a_store() {
    check("hot-processes", "sqlite", &["tenure", "bare"]);
    check_on_redis("hot-processes", &[]);
}

#[test]
fn a_lone_waiter_of_another_process_gets_the_key_on_every_store_that_is_shared() {
    check("lone-waiter", "sqlite", &["tenure", "bare"]);
    check_on_redis("lone-waiter", &[]);
}

#[test]
fn a_server_can_be_away_and_every_round_trip_takes_its_time() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = bench(
        dir.path(),
        &["--workload", "solo", "--distance", "away", "--markdown"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("| the server | a millisecond or two away"),
        "{text}"
    );
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| solo | redis |"))
        .map(|line| line.split(" | ").collect())
        .collect();
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
    let args = ["--workload", "hot-processes", "--distance", "apart", "--markdown"];
    let output = bench(dir.path(), &args);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert!(output.status.success(), "{said}");
        assert!(text.contains("| the server | on a core of its own"), "{text}");
        assert!(text.contains("| hot-processes | redis | tenure |"), "{text}");
    } else {
        assert!(said.contains("needs two cores"), "{said}");
    }
}

#[test]
fn a_store_without_a_server_is_nowhere_else_and_that_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--workload", "solo", "--store", "memory", "--distance", "away"];
    let printed = String::from_utf8(bench(dir.path(), &args).stdout).unwrap();
    let said = "solo on memory is left out: it has no server that could be elsewhere.";
    assert!(printed.contains(said), "{printed}");
}

#[test]
fn several_processes_are_left_out_where_nothing_is_shared_and_the_reason_is_printed() {
    for workload in ["hot-processes", "lone-waiter"] {
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
fn locks_that_are_held_on_a_server_are_renewed_many_by_one_command() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tenure-bench"))
        .args(["held", "--store", "redis", "--locks", "40", "--lease-ms", "1000"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(printed.contains("40 locks on redis"), "{printed}");
    let line = printed
        .lines()
        .find(|line| line.starts_with("locks renewed by each"));
    let mean: f64 = line
        .and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .expect("a figure");
    assert!(mean > 1.0, "{printed}");
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
        "| Redis |",
        "| redis, rslock, rlock | 1.",
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
fn a_page_gets_its_section_anew_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let marks = [
        "<!-- results: cargo xtask bench full --into BENCHMARKS.md -->",
        "<!-- end of results -->",
    ];
    std::fs::write(&page, format!("first\n{}\nold\n{}\nlast\n", marks[0], marks[1])).unwrap();
    let into = page.to_str().unwrap();
    let args = ["--workload", "solo", "--store", "memory", "--into", into];
    assert!(bench(dir.path(), &args).status.success());
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(
        text.starts_with(&format!("first\n{}\n\n| on |", marks[0])),
        "{text}"
    );
    assert!(text.ends_with(&format!("\n\n{}\nlast\n", marks[1])), "{text}");
    assert!(
        text.contains("| solo | memory | tenure |") && !text.contains("old"),
        "{text}"
    );
    std::fs::write(&page, "no marks").unwrap();
    let said = String::from_utf8(bench(dir.path(), &args).stderr).unwrap();
    assert!(said.contains("has no lines `<!-- results"), "{said}");
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
