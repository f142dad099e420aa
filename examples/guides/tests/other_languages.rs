//! Runs the programs of docs/guides/other-languages.md.
#![cfg(target_os = "linux")]

#[path = "../../fixture.rs"]
mod fixture;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use fixture::{Fixture, Process, tenure_command, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use tenure_servers::needs;

/// The block of code in this language.
fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/other-languages.md");
    let page = fs::read_to_string(page).expect("the guide is there");
    let (_, rest) = page
        .split_once(&format!("```{language}\n"))
        .expect("it has a program");
    rest.split_once("```").expect("it ends").0.to_owned()
}

/// The child process of any thread of the program: `tenure hold`.
fn hold_of(program: &Process) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", program.pid())).expect("the program runs");
    let mut pids = threads.filter_map(|thread| {
        let children = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    });
    pids.next().and_then(Pid::from_raw)
}

/// Runs a program that takes the lock `k`, stops its `tenure hold`, and takes the lock as another process as soon as the
/// store gives it. From then on the program must not work.
fn stops_in_time(fixture: &Fixture, words: &[&str]) {
    let tenure = tenure_command();
    let mut path = OsString::from(tenure.parent().expect("it is in a folder"));
    path.push(":");
    path.push(env::var_os("PATH").expect("there is one"));
    let with_path = |program: &str| {
        let mut command = fixture.command(program);
        command.env("PATH", &path);
        command
    };
    let mut command = with_path(words[0]);
    let output = File::create(fixture.path("out")).expect("the folder is ours");
    command
        .args(&words[1..])
        .arg("k")
        .stdin(Stdio::null())
        .stdout(output);
    let mut program = Process::of(command.spawn().expect("it is installed"));
    let lines = || fs::read_to_string(fixture.path("out")).expect("it was made");
    wait_for("the program works", || lines().contains("working"));
    assert!(lines().starts_with("token "), "{}", lines());
    let hold = hold_of(&program).expect("it has started `tenure hold`");
    kill_process(hold, Signal::STOP).expect("it runs");
    // Counts the lines when it has the lock, and again after several steps of the program.
    let mut next = with_path("tenure");
    next.args([
        "-q",
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "wc -l <out; sleep 1; wc -l <out",
    ]);
    let mut next = Process::start(next);
    let counts = next.rest();
    assert_eq!(next.exit_code(), 0);
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert_eq!(
        counts[0], counts[1],
        "{words:?} worked on while another process had the lock"
    );
    assert_eq!(program.exit_code(), 1);
    kill_process(hold, Signal::KILL).expect("it is stopped");
}

fn build(fixture: &Fixture, words: &[&str]) {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(fixture.path("."));
    assert!(command.status().expect("it is installed").success(), "{words:?}");
}

fn write(fixture: &Fixture, name: &str, language: &str) {
    fs::write(fixture.path(name), block(language)).expect("the folder is ours");
}

#[test]
fn the_program_in_python_stops_in_time() {
    if needs("python3", "python3") {
        let fixture = Fixture::new();
        write(&fixture, "worker.py", "python");
        let times = env::var("TENURE_LANGUAGE_RUNS").map_or(1, |runs| runs.parse().expect("a number"));
        for _ in 0..times {
            stops_in_time(&fixture, &["python3", "worker.py"]);
        }
    }
}

#[test]
fn the_program_in_node_stops_in_time() {
    if needs("node", "nodejs") {
        let fixture = Fixture::new();
        write(&fixture, "worker.mjs", "javascript");
        stops_in_time(&fixture, &["node", "worker.mjs"]);
    }
}

#[test]
fn the_program_in_go_stops_in_time() {
    if needs("go", "golang-go") {
        let fixture = Fixture::new();
        write(&fixture, "worker.go", "go");
        build(&fixture, &["go", "build", "-o", "worker", "worker.go"]);
        stops_in_time(&fixture, &[fixture.path("worker").to_str().expect("text")]);
    }
}

#[test]
fn the_program_in_java_stops_in_time() {
    if needs("javac", "default-jdk-headless") {
        let fixture = Fixture::new();
        write(&fixture, "Worker.java", "java");
        build(&fixture, &["javac", "Worker.java"]);
        stops_in_time(&fixture, &["java", "Worker"]);
    }
}
