//! Tests on a pseudo-terminal, under a shell with job control: the tests type keys.
//!
//! A command that a test suspends must not start processes: the signal could stop a child between vfork and exec, and
//! the parent, which waits for the exec, could then not stop.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use rustix::process::{Pid, Signal};

use crate::fixture::{Fixture, LIMIT, alive, send, stat_field, wait_for};
use crate::{common, probe, trials};

trials![
    the_command_has_the_terminal_and_gives_it_back,
    the_command_has_the_terminal_before_it_begins,
    an_interrupt_key_reaches_the_command_and_not_tenure,
    a_suspended_command_continues_in_the_foreground,
    a_command_suspended_past_its_deadline_is_killed_and_reported,
    a_command_in_the_background_is_not_given_the_terminal,
    a_suspended_pipeline_stops_the_command_too,
    a_killed_guardian_leaves_the_terminal_to_the_shell,
];

/// A shell with job control, and the output on its terminal.
struct Screen {
    shell: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Screen {
    fn open(fixture: &Fixture) -> Screen {
        let mut shell = Command::new("setsid");
        shell
            .args(["--ctty", "bash", "--norc", "--noediting", "-i"])
            .current_dir(fixture.folder.path());
        shell
            .env("PS1", "ready> ")
            .env("PROBE", std::env::current_exe().expect("our own path"));
        let (shell, keys) = common::at_a_terminal(shell);
        let mut reader = keys.try_clone().expect("a descriptor");
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count) = reader.read(&mut chunk) {
                if count == 0 || sender.send(chunk[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut screen = Screen {
            shell,
            keys,
            output,
            seen: String::new(),
        };
        screen.shows("ready> ");
        let probe = probe::NAME;
        // With `set -b` the shell reports changes of its jobs at once.
        screen.types(&format!(
            "set -b; probe() {{ (exec -a {probe} \"$PROBE\" \"$@\"); }}\n"
        ));
        screen.shows("ready> ");
        screen
    }

    fn types(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    /// Starts a script that runs the command under a probe, which takes the place of `tenure run`, and then reads a
    /// line from the terminal. The script's shell has no job control, so it does not take the terminal back itself.
    fn runs_a_script(&mut self, fixture: &Fixture, command: &str) {
        let probe = format!("exec -a {} \"$PROBE\" {FAR} -- {command}", probe::NAME);
        let probe = probe.replace('\'', "'\\''");
        fixture.write(
            "script",
            &format!("bash -c '{probe}'\nread b; echo then:$b\n"),
            0o600,
        );
        self.types("sh script\n");
    }

    /// Waits until the terminal shows `text`. Returns the output since the previous wait, up to the end of `text`.
    fn shows(&mut self, text: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("the screen never showed {text:?}, but {:?}", self.seen),
            }
        }
    }

    fn shows_pid(&mut self, word: &str) -> i32 {
        self.shows(word);
        self.shows("\r\n").trim().parse().expect("a process id")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Kill all processes of the session, in case the test has failed.
        let session = self.shell.id().to_string();
        let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if stat_field(pid, 3).is_some_and(|id| id == session) {
                // An error means that the process has ended.
                let _ = rustix::process::kill_process(Pid::from_raw(pid).expect("not zero"), Signal::KILL);
            }
        }
        let _ = self.shell.wait();
    }
}

const INTERRUPT: &str = "\u{3}";
const SUSPEND: &str = "\u{1a}";
/// A deadline that no test reaches.
const FAR: &str = "term=600000 kill=600000";

fn the_command_has_the_terminal_and_gives_it_back() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    screen.runs_a_script(&fixture, "sh -c 'read a; echo got:$a'");
    screen.shows("started");
    screen.types("one\n");
    screen.shows("got:one");
    screen.shows("Ended");
    screen.types("two\n");
    screen.shows("then:two");
    screen.shows("ready> ");
}

fn the_command_has_the_terminal_before_it_begins() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    // The fields of `stat` are id, name, state, parent, group, session, terminal and the terminal's foreground group.
    let compare = "read id name state parent group session tty foreground rest < /proc/$$/stat; \
        if [ $group = $foreground ]; then echo has:it; else echo has:not; fi";
    screen.runs_a_script(&fixture, &format!("sh -c '{compare}'"));
    screen.shows("has:");
    assert_eq!(screen.shows("\r\n").trim(), "it");
}

fn an_interrupt_key_reaches_the_command_and_not_tenure() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    let script = "trap \"echo once; exit 9\" INT; touch up; while :; do sleep 0.05; done";
    screen.types(&format!("probe {FAR} -- sh -c '{script}'; echo code:$?\n"));
    screen.shows("started");
    fixture.wait_for_file("up");
    screen.types(INTERRUPT);
    let shown = screen.shows("code:9");
    assert_eq!(shown.matches("once\r\n").count(), 1, "{shown}");
}

fn a_suspended_command_continues_in_the_foreground() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    screen.types(&format!(
        "probe {FAR} -- sh -c 'echo $$ > pids; read a; echo got:$a; exit 3'\n"
    ));
    screen.shows("started");
    let leader = fixture.pids("pids", 1)[0];
    screen.types(SUSPEND);
    screen.shows("Stopped");
    screen.shows("ready> ");
    wait_for("the command's stop", || state(leader) == Some('T'));
    screen.types("fg\n");
    wait_for("the command's going on", || state(leader) == Some('S'));
    screen.types("word\n");
    screen.shows("got:word");
    screen.shows("ready> ");
    screen.types("echo code:$?\n");
    screen.shows("code:3");
}

fn a_command_suspended_past_its_deadline_is_killed_and_reported() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    let script = "trap : TERM; echo $$ > pids; while :; do read a; done";
    screen.types(&format!(
        "probe term=2000 kill=2500 renew=200 -- sh -c '{script}'\n"
    ));
    let leader = fixture.pids("pids", 1)[0];
    screen.types(SUSPEND);
    screen.shows("Stopped");
    wait_for("the command's end", || !alive(leader));
    screen.types("fg\n");
    screen.shows("stopped_by: Some(Deadline)");
    screen.shows("while_suspended: true");
}

fn a_command_in_the_background_is_not_given_the_terminal() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    screen.types(&format!(
        "probe {FAR} -- sh -c 'echo $$ > pids; read a; echo got:$a' &\n"
    ));
    let leader = fixture.pids("pids", 1)[0];
    // The command tries to read and is stopped. `fg` continues the job only after the shell has noticed the stop.
    screen.shows("Stopped");
    assert_eq!(state(leader), Some('T'));
    // The shell still has the terminal, and so can give the terminal to the job.
    screen.types("echo still:here\n");
    screen.shows("still:here\r\n");
    screen.types("fg\n");
    wait_for("the command's going on", || state(leader) == Some('S'));
    screen.types("word\n");
    screen.shows("got:word");
}

fn a_suspended_pipeline_stops_the_command_too() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    screen.types(&format!(
        "probe {FAR} -- sh -c 'echo $$ > pids; exec sleep 600' | cat\n"
    ));
    let tenure = screen.shows_pid("tenure ");
    let leader = fixture.pids("pids", 1)[0];
    screen.types(SUSPEND);
    screen.shows("Stopped");
    // The shell reports a stopped pipeline once one of its processes has stopped, so wait for the others.
    wait_for("the stop of both", || {
        state(leader) == Some('T') && state(tenure) == Some('T')
    });
    screen.types("fg\n");
    wait_for("the command's going on", || state(leader) == Some('S'));
    screen.types(INTERRUPT);
    wait_for("the command's end", || !alive(leader));
    screen.shows("ready> ");
}

fn a_killed_guardian_leaves_the_terminal_to_the_shell() {
    let fixture = Fixture::new();
    let mut screen = Screen::open(&fixture);
    screen.runs_a_script(&fixture, "sleep 600");
    let guardian = screen.shows_pid("guardian ");
    screen.shows("started");
    send(guardian, Signal::KILL);
    screen.shows("GuardianDied");
    screen.types("two\n");
    screen.shows("then:two");
}

/// Returns the letter of a process's state: `S` if the process runs or sleeps, `T` if it is stopped.
fn state(pid: i32) -> Option<char> {
    let letter = stat_field(pid, 0)?.chars().next()?;
    Some(if letter == 'R' { 'S' } else { letter })
}
