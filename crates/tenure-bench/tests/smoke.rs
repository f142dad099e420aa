//! Every workload runs to its end and writes its rows. No test here judges the speed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tenure_servers::needs;

/// Exit code, standard output (`printed`) and standard error (`said`) of a run.
struct Run {
    code: Option<i32>,
    printed: String,
    said: String,
}

fn run(command: &mut Command) -> Run {
    let output = command.output().expect("the bench starts");
    let [printed, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let code = output.status.code();
    Run { code, printed, said }
}

/// The command `tenure-bench` with these arguments, separated by spaces.
fn bench(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure-bench"));
    command.args(words.split(' '));
    // A JVM warms up for 5 s unless this is set.
    command.env("TENURE_BENCH_JVM_WARM_UP_MS", "200");
    command
}

const SHORT: &str = "--rounds 2 --round-ms 30";

/// For clients that need more time for their first lock, on a busy machine.
const LONGER: &str = "--rounds 2 --round-ms 300";

/// Runs `quick` with two short rounds. All temporary files are in `dir`.
fn quick(dir: &Path, words: &str) -> Run {
    quick_of(SHORT, dir, words)
}

/// Runs `quick` with these rounds.
fn quick_of(rounds: &str, dir: &Path, words: &str) -> Run {
    run(bench(&format!("quick {rounds} {words} --dir")).arg(dir))
}

/// The clients in Rust of one server.
const OF_ONE: &str = "tenure,tenure-no-local-handover,tenure-linger,rslock,rlock,bare";

/// Runs one workload on one store with some clients, in these rounds. Returns its rows and the printed text.
fn rows(workload: &str, store: &str, clients: &str, rounds: &str) -> (Vec<Value>, String) {
    let (files, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let json = other.path().join("rows.json");
    let words = format!(
        "--workload {workload} --store {store} --client {clients} --json {}",
        json.display()
    );
    let Run { code, printed, said } = quick_of(rounds, files.path(), &words);
    assert_eq!(code, Some(0), "{said}");
    let left: Vec<_> = std::fs::read_dir(&files).unwrap().collect();
    assert!(left.is_empty(), "{left:?} was left behind");
    let text = std::fs::read_to_string(json).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (rows.collect(), printed)
}

/// The rows of those printed tables that have three or more columns.
fn cells(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter(|cells| cells.len() > 3)
}

/// Runs workloads on a store. The tests of `plan.rs` check which clients take part.
fn run_on(store: &str, clients: &str, workloads: &[&str]) {
    let alone = ["solo", "many", "hot"];
    for &workload in workloads {
        let (rows, printed) = rows(workload, store, clients, SHORT);
        if store == "memory" && !alone.contains(&workload) {
            let note = format!("{workload} on memory is left out: memory is not shared between processes.");
            assert!(rows.is_empty() && printed.contains(&note), "{printed}");
            continue;
        }
        // Some clients do not offer every workload.
        assert!(rows.len() >= clients.split(',').count().min(2), "{printed}");
        for row in &rows {
            let names = [workload, store, row["client"].as_str().unwrap()];
            assert_eq!([&row["workload"], &row["store"]], names[..2]);
            assert!(row["rate_per_s"].is_f64(), "{row}");
            assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
            assert!(row["max_us"].as_f64() >= row["p50_us"].as_f64(), "{row}");
            if workload == "solo" || workload == "many" {
                assert_eq!(
                    row["handovers_per_s"], 0.0,
                    "no other worker holds these keys: {row}"
                );
            }
            assert!(cells(&printed).any(|cells| cells[..3] == names), "{printed}");
        }
    }
}

/// Every workload.
const ALL: [&str; 6] = ["solo", "many", "hot", "pair", "hot-processes", "lone-waiter"];

#[test]
fn every_workload_runs_without_a_server() {
    run_on("memory", OF_ONE, &ALL);
    run_on("sqlite", OF_ONE, &ALL);
}

#[test]
fn every_workload_runs_on_redis() {
    if needs("redis-server", "redis-server") {
        run_on("redis", OF_ONE, &ALL);
    }
}

/// A cluster takes seconds to start, so only two workloads run on one.
#[test]
fn workloads_run_on_several_servers_of_redis() {
    if needs("redis-server", "redis-server") {
        run_on(
            "redis",
            "tenure-cluster,tenure-quorum",
            &["many", "hot-processes"],
        );
    }
}

/// Each client gets a server of its own, and a server of these takes seconds to start.
#[test]
fn every_workload_runs_on_the_other_stores() {
    for (store, program, package) in [
        ("postgres", "postgres", "postgresql"),
        ("etcd", "etcd", "etcd-server"),
        ("zookeeper", "zookeeper", "zookeeper"),
    ] {
        if needs(program, package) {
            run_on(store, "tenure", &ALL);
        }
    }
}

/// Clients in other languages, whose processes a build of its own makes.
#[test]
fn clients_in_other_languages_take_part() {
    let [maven, javac] = [("mvn", "maven"), ("javac", "default-jdk-headless")];
    let redisson = [("redis-server", "redis-server"), maven, javac];
    let curator = [("zookeeper", "zookeeper"), maven, javac];
    let go = [("etcd", "etcd-server"), ("go", "golang-go")];
    for (store, client, workloads, tools) in [
        ("redis", "redisson", &["hot", "pair"][..], &redisson[..]),
        ("zookeeper", "curator", &["many", "pair"], &curator),
        ("etcd", "go", &["hot", "pair"], &go),
    ] {
        if !tools.iter().all(|(program, package)| needs(program, package)) {
            continue;
        }
        for workload in workloads {
            let (rows, printed) = rows(workload, store, client, LONGER);
            assert_eq!(rows.len(), 1, "{printed}");
            assert_eq!(rows[0]["client"], client);
            assert!(rows[0]["rate_per_s"].as_f64() > Some(0.0), "{printed}");
        }
    }
}

#[test]
fn a_server_that_is_away_delays_every_round_trip() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Run { code, printed, said } = quick(
        dir.path(),
        "--workload solo --distance away --client tenure,rslock,rlock,bare",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("a millisecond or two away"), "{printed}");
    assert!(!printed.contains("solo | memory"), "it has no server: {printed}");
    // Each of these clients needs a round trip of 2 ms to lock and one to unlock, so it takes at most 250 locks per
    // second. On a busy machine no lock may end within a round.
    for client in ["tenure", "rslock", "rlock", "bare"] {
        let row = cells(&printed).find(|row| row[..3] == ["solo", "redis", client]);
        let row = row.expect("a row of the client");
        let rate: f64 = row[3].parse().expect("a rate");
        let median = row[5].strip_suffix("ms").map(|ms| ms.parse::<f64>());
        let median = median.expect("milliseconds").expect("a number");
        assert!(rate <= 250.0 && median >= 2.0, "{rate}, {median}, {printed}");
    }
}

#[test]
fn a_server_gets_its_own_core_if_there_are_two() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Run { code, printed, said } = quick(
        dir.path(),
        "--workload hot-processes --distance apart --client tenure,bare",
    );
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains("on a core of its own"), "{printed}");
        let ours = cells(&printed).find(|row| row[..3] == ["hot-processes", "redis", "tenure"]);
        assert!(ours.is_some(), "{printed}");
    } else {
        assert!(said.contains("needs two cores"), "{said}");
    }
}

#[test]
fn a_missing_program_is_named_before_the_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let server = run(bench("quick --store memory,redis --workload solo").env("PATH", dir.path()));
    for said in [
        "`redis-server` is not installed",
        "`--store memory,sqlite` does without",
    ] {
        assert!(server.said.contains(said), "{}", server.said);
    }
    let file = quick(dir.path(), "--json /nowhere/rows.jsonl");
    for Run { code, said, .. } in [server, file] {
        assert_eq!(code, Some(1));
        assert!(!said.contains("solo on memory"), "{said}");
    }
}

#[test]
fn the_held_verb_measures_memory_and_processor_time() {
    for store in ["memory", "redis"] {
        if store == "redis" && !needs("redis-server", "redis-server") {
            continue;
        }
        let words = format!("held --store {store} --locks 40 --lease-ms 1000");
        let Run { code, printed, said } = run(&mut bench(&words));
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains(&format!("40 locks on {store}")), "{printed}");
    }
}

#[test]
fn two_builds_are_compared() {
    let rate = |rate| format!(r#"echo '{{"client":"tenure","rate_per_s":{rate}}}' > "$json""#);
    let left_out = "hot on memory is left out: the old build does not have it";
    // The workload, the last lines of a shell script that stands for the old build, and the exit code and some words
    // of the output of the comparison.
    for (workload, old, code, words) in [
        ("solo", &*rate("1e12"), 1, &["| slower", "1 rows are slower"][..]),
        ("solo", &rate("1"), 0, &["| solo"]),
        ("hot", "exit 2", 0, &[left_out]),
        ("solo", "echo no server >&2; exit 1", 1, &["no server"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("old");
        let read_json = r#"while [ $# -gt 0 ]; do [ "$1" = --json ] && json=$2; shift; done"#;
        std::fs::write(&program, format!("#!/bin/sh\n{read_json}\n{old}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = format!("--workload {workload} --store memory {SHORT}");
        let compared = run(bench(&format!("against {options}")).arg(program));
        let printed = compared.printed + &compared.said;
        assert_eq!(compared.code, Some(code), "{old}: {printed}");
        for words in words {
            assert!(printed.contains(words), "{old}: {printed}");
        }
        let says_slower = words.contains(&"| slower");
        assert_eq!(printed.contains("slower"), says_slower, "{old}: {printed}");
    }
}
