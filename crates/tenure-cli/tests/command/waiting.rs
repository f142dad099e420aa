//! Output of `run` and `hold` while they wait: the holder of the lock, on a terminal and without one.

use std::fs::File;
use std::io::Read;

use rustix::process::Signal;

use crate::common;
use crate::fixture::{Fixture, Process, wait_for};

const ERASE: &str = "\r\u{1b}[K";

/// A command on a new terminal, and what it has printed there.
struct Terminal {
    process: Process,
    keys: File,
    printed: Vec<u8>,
}

impl Terminal {
    fn start(fixture: &Fixture, args: &[&str]) -> Terminal {
        let mut command = fixture.command(args);
        command.env("TERM", "xterm");
        let (child, keys) = common::at_a_terminal(command);
        Terminal {
            process: Process::of(child),
            keys,
            printed: Vec::new(),
        }
    }

    /// Reads once. After the last process has closed the terminal, a read fails (EIO), which ends the output.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let count = self.keys.read(&mut chunk).unwrap_or(0);
        self.printed.extend(&chunk[..count]);
        count > 0
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed).into_owned()
    }

    fn wait_for(&mut self, words: &str) {
        wait_for(words, || self.text().contains(words) || !self.read());
        assert!(self.text().contains(words), "{words} is not in {}", self.text());
    }

    /// Reads until the command has ended. Returns its exit code and all that it printed.
    fn finish(mut self) -> (i32, String) {
        while self.read() {}
        (self.process.exit_code(), self.text())
    }
}

#[test]
fn a_line_on_the_terminal_names_the_holder_and_is_erased() {
    let fixture = Fixture::new();
    let holder = fixture.holding(&["k", "--label", "ann\u{1b}[2J"]);
    let mut run = Terminal::start(&fixture, &["run", "k", "--", "echo", "mine"]);
    run.wait_for("waiting for \"k\": held by ann\\u{1b}[2J, ");
    run.wait_for(" for at least 1s, ");
    run.wait_for("s left of its lease");
    holder.release();
    let (code, text) = run.finish();
    assert_eq!(code, 0);
    let (line, rest) = text.rsplit_once(ERASE).expect("the line was erased");
    assert!(line.contains("held by ann") && rest == "mine\r\n", "{text:?}");
    assert!(
        !text.contains("ann\u{1b}"),
        "a label cannot steer the terminal: {text:?}"
    );
}

#[test]
fn the_line_is_erased_when_the_wait_ends_without_the_lock() {
    let fixture = Fixture::new();
    let holder = fixture.holding(&["k", "--label", "ann"]);
    let limited = Terminal::start(&fixture, &["run", "k", "-w", "5s", "--", "true"]);
    let (code, text) = limited.finish();
    let (_, rest) = text.rsplit_once(ERASE).expect("the line was erased");
    assert_eq!(code, 124);
    assert!(
        rest.starts_with("note: not free within --wait: \"k\"; held by ann"),
        "{text:?}"
    );
    let mut interrupted = Terminal::start(&fixture, &["hold", "k", "--no-stdin"]);
    interrupted.wait_for("held by ann");
    interrupted.process.send(Signal::INT);
    let (code, text) = interrupted.finish();
    let (_, rest) = text.rsplit_once(ERASE).expect("the line was erased");
    assert_eq!((code, rest), (1, "{\"event\":\"cancelled\"}\r\n"), "{text:?}");
    holder.release();
}

#[test]
fn a_short_wait_and_a_quiet_one_show_no_line() {
    let fixture = Fixture::new();
    let holder = fixture.holding(&["k"]);
    for args in [
        &["run", "k", "-w", "500ms", "--", "true"][..],
        &["-q", "run", "k", "-w", "1500ms", "--", "true"],
        &["--json", "run", "k", "-w", "1500ms", "--", "true"],
    ] {
        let (code, text) = Terminal::start(&fixture, args).finish();
        assert_eq!(code, 124);
        assert!(!text.contains("waiting for"), "{args:?}: {text:?}");
    }
    holder.release();
}

#[test]
fn without_a_terminal_one_plain_line_comes_after_10_s() {
    let fixture = Fixture::new();
    let holder = fixture.holding(&["k", "--label", "ann"]);
    let start = |flags: &[&str]| fixture.start(&[flags, &["run", "k", "-w", "16s", "--", "true"]].concat());
    let runs = [start(&[]), start(&["-q"]), start(&["--json"])];
    let [plain, quiet, json] = runs.map(|run| run.finish().stderr);
    let lines: Vec<&str> = plain.lines().collect();
    assert_eq!(lines.len(), 2, "{plain}");
    assert!(
        lines[0].starts_with("note: waiting for \"k\": held by ann for at least "),
        "{plain}"
    );
    assert!(
        lines[1].starts_with("note: not free within --wait: \"k\"; held by ann"),
        "{plain}"
    );
    assert_eq!(quiet, "");
    assert!(!json.contains("waiting for"), "{json}");
    holder.release();
}

#[test]
fn a_busy_lock_names_its_holder() {
    let fixture = Fixture::new();
    let holder = fixture.holding(&["b", "--label", "ann"]);
    let stderr = |args: &[&str]| fixture.call(args).stderr;
    let run = stderr(&["run", "b", "-n", "--", "true"]);
    assert!(run.starts_with("note: busy: \"b\"; held by ann, "), "{run}");
    assert!(
        run.ends_with(" left of its lease; the command was not run\n"),
        "{run}"
    );
    let hold = stderr(&["hold", "--no-stdin", "a", "b", "-n"]);
    assert!(
        hold.starts_with("note: busy: one of \"a\", \"b\"; \"b\" is held by ann, "),
        "{hold}"
    );
    holder.release();
}
