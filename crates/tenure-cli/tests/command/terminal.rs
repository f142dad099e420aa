//! A hold at a terminal, as a job of a shell.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use crate::common;
use crate::scene::{Process, Scene, wait_for};

/// A shell with job control that runs the script in a terminal of its own, and the terminal's keys.
fn at_a_terminal(scene: &Scene, script: &str) -> (Process, File) {
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "bash", "--norc", "-mc", script]);
    shell.current_dir(scene.folder.path());
    shell
        .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
        .env("STORE", scene.url());
    let (shell, keys) = common::at_a_terminal(shell);
    (Process::of(shell), keys)
}

const HOLD: &str = r#""$TENURE" --url "$STORE" hold k --lease 1s > events"#;
const END_OF_FILE: &[u8] = b"\x04";

fn has_told(scene: &Scene, event: &str) -> bool {
    let events = fs::read_to_string(scene.path("events")).unwrap_or_default();
    events.contains(&format!("{{\"event\":\"{event}\""))
}

#[test]
fn in_the_background_of_a_terminal_a_hold_goes_on_and_reads_no_key() {
    let scene = Scene::new();
    let script = format!("{HOLD} & while ! test -e go; do sleep 0.02; done; fg; echo $? > code");
    let (shell, mut keys) = at_a_terminal(&scene, &script);
    wait_for("the lock", || has_told(&scene, "acquired"));
    keys.write_all(b"for the shell\n")
        .expect("the terminal takes keys");
    keys.write_all(END_OF_FILE).expect("the terminal takes keys");
    let mut before = u64::MAX;
    wait_for("a renewal", || {
        let left = scene.shown("k")["holders"][0]["remaining_ms"]
            .as_u64()
            .expect("it is held");
        left > std::mem::replace(&mut before, left)
    });
    assert!(!has_told(&scene, "released"));
    scene.write("go", "", 0o600);
    // In the foreground the keys are its own, also those that were typed before.
    assert_eq!(scene.lines("code", 1), ["0"]);
    assert!(has_told(&scene, "released"));
    shell.finish();
}

#[test]
fn in_the_foreground_of_a_terminal_a_hold_ends_with_the_end_of_its_input() {
    let scene = Scene::new();
    let (shell, mut keys) = at_a_terminal(&scene, &format!("{HOLD}; echo $? > code"));
    wait_for("the lock", || has_told(&scene, "acquired"));
    keys.write_all(b"a line\n").expect("the terminal takes keys");
    keys.write_all(END_OF_FILE).expect("the terminal takes keys");
    assert_eq!(scene.lines("code", 1), ["0"]);
    assert!(has_told(&scene, "released"));
    shell.finish();
}
