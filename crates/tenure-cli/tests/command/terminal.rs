//! `tenure hold` on a terminal, as a job of a shell.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use crate::common;
use crate::fixture::{Fixture, Process, wait_for};

/// Runs the script in a shell with job control on a new terminal. Returns the shell and the terminal's other side, to
/// which the test writes keystrokes.
fn at_a_terminal(fixture: &Fixture, script: &str) -> (Process, File) {
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "bash", "--norc", "-mc", script]);
    shell.current_dir(fixture.folder.path());
    shell
        .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
        .env("STORE", fixture.url());
    let (shell, keys) = common::at_a_terminal(shell);
    (Process::of(shell), keys)
}

const HOLD: &str = r#""$TENURE" --url "$STORE" hold k --lease 6s > events 2> said"#;
const END_OF_FILE: &[u8] = b"\x04";

fn has_printed(fixture: &Fixture, event: &str) -> bool {
    let events = fs::read_to_string(fixture.path("events")).unwrap_or_default();
    events.contains(&format!("{{\"event\":\"{event}\""))
}

#[test]
fn a_background_hold_goes_on_and_reads_no_key() {
    let fixture = Fixture::new();
    let script = format!("{HOLD} & while ! test -e go; do sleep 0.02; done; fg; echo $? > code");
    let (shell, mut keys) = at_a_terminal(&fixture, &script);
    wait_for("the lock", || has_printed(&fixture, "acquired"));
    keys.write_all(b"for the shell\n")
        .expect("the terminal takes keys");
    keys.write_all(END_OF_FILE).expect("the terminal takes keys");
    let mut before = u64::MAX;
    wait_for("a renewal", || {
        let left = fixture.shown("k")["holders"][0]["remaining_ms"]
            .as_u64()
            .expect("it is held");
        left > std::mem::replace(&mut before, left)
    });
    assert!(!has_printed(&fixture, "released"));
    let said = fs::read_to_string(fixture.path("said")).expect("the shell has made it");
    // The command warns when other tests leave it no processor.
    let mut said = said
        .lines()
        .filter(|line| !line.starts_with("warning: runtime stalled"));
    assert_eq!(said.next(), None, "no key reaches a background job");
    fixture.write("go", "", 0o600);
    // In the foreground, `hold` also reads the keystrokes that were typed while it was in the background.
    assert_eq!(fixture.lines("code", 1), ["0"]);
    assert!(has_printed(&fixture, "released"));
    shell.finish();
}

#[test]
fn a_foreground_hold_ends_with_its_input() {
    let fixture = Fixture::new();
    let (shell, mut keys) = at_a_terminal(&fixture, &format!("{HOLD}; echo $? > code"));
    wait_for("the lock", || has_printed(&fixture, "acquired"));
    keys.write_all(b"a line\n").expect("the terminal takes keys");
    keys.write_all(END_OF_FILE).expect("the terminal takes keys");
    assert_eq!(fixture.lines("code", 1), ["0"]);
    assert!(has_printed(&fixture, "released"));
    shell.finish();
}

#[test]
fn a_hold_at_a_terminal_names_the_key_that_releases() {
    for (options, hint) in [
        ("hold k", "note: the lock is held; Ctrl-D releases it\n"),
        (
            "hold k --at-least 1h",
            "note: the lock is held; Ctrl-C releases it\n",
        ),
        ("-q hold k", ""),
        ("hold k --no-stdin", ""),
        ("hold k < pipe", ""),
    ] {
        let fixture = Fixture::new();
        let script = format!(
            r#"mkfifo pipe; exec 3<> pipe; "$TENURE" --url "$STORE" {options} 2> said > events; echo $? > code"#
        );
        let (shell, mut keys) = at_a_terminal(&fixture, &script);
        wait_for("the lock", || has_printed(&fixture, "acquired"));
        // Ctrl-C releases every one of them.
        keys.write_all(b"\x03").expect("the terminal takes keys");
        wait_for("the release", || has_printed(&fixture, "released"));
        shell.finish();
        let said = fs::read_to_string(fixture.path("said")).expect("the shell has made it");
        assert_eq!(said, hint, "{options}");
    }
}
