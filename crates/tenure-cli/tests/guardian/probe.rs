//! The probe takes the place of `tenure run`: it drives a guardian as its arguments say, and prints events on stderr.
//!
//! `guardian-probe [WORD=MS]… -- CMD ARG…`, with times in milliseconds: `term` and `kill` (the deadline), `renew`
//! (interval at which the deadline is sent again), `waive` (no deadline once the command has begun), `stop` (when the
//! lock is lost) and `grace` (time from TERM to KILL after this loss), `back` (when the deadline moves back to the
//! present). With `stopped`, the probe waits before the start until the test has stopped the guardian. With `ready`, all
//! times count from when the command has written the file `ready`; the probe then prints `ready`. With `cancel`, the
//! probe orders the start of the command and prints `ordered`; once the command has written the file `ready`, and before
//! the probe has read that it begins, the probe cancels the start.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tenure_cli::guardian::{
    Deadline, Ended, Event, Inbox, Launch, Recipient, StartError, StopReason, Supervisor, now,
};

use crate::fixture::{stat_field, wait_for};

pub(crate) const NAME: &str = "guardian-probe";

const WORDS: [&str; 10] = [
    "term", "kill", "renew", "stop", "back", "grace", "waive", "stopped", "ready", "cancel",
];

struct Script {
    words: HashMap<String, Duration>,
    argv: Vec<OsString>,
}

impl Script {
    fn from_args() -> Script {
        let mut words = HashMap::new();
        let mut args = env::args_os().skip(1);
        for word in args.by_ref().map_while(|arg| (arg != "--").then_some(arg)) {
            let word = word.into_string().expect("words are plain text");
            let (name, ms) = word.split_once('=').expect("WORD=MS");
            let span = Duration::from_millis(ms.parse().expect("a number"));
            assert!(WORDS.contains(&name), "unknown word {name}");
            words.insert(name.to_owned(), span);
        }
        let argv = args.collect();
        Script { words, argv }
    }

    fn word(&self, name: &str) -> Option<Duration> {
        self.words.get(name).copied()
    }

    fn deadline(&self) -> Option<Deadline> {
        let now = now();
        Some(Deadline {
            term_at: now + self.word("term")?,
            kill_at: now + self.word("kill")?,
        })
    }
}

pub(crate) fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run(Script::from_args()))
}

/// Prints a line in one write, because the command writes to the same stderr.
fn tell(line: &str) {
    // An error means that the test has ended.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

async fn run(script: Script) -> ExitCode {
    let mut inbox = Inbox::open().expect("signals can be received");
    let mut supervisor = Supervisor::spawn(Path::new(env!("CARGO_BIN_EXE_tenure"))).expect("a guardian");
    tell(&format!("tenure {}", std::process::id()));
    tell(&format!("guardian {}", supervisor.guardian_pid()));
    let never = Duration::from_secs(3600);
    let without_grace = |time| Deadline {
        term_at: time,
        kill_at: time,
    };
    let waits = script.word("ready").is_some();
    let until_ready = waits.then(|| without_grace(now() + never));
    if let Some(deadline) = until_ready.or_else(|| script.deadline()) {
        supervisor.arm(deadline);
    }
    if script.word("stopped").is_some() {
        let guardian = supervisor.guardian_pid().cast_signed();
        wait_for("the guardian's stop", || {
            stat_field(guardian, 0).as_deref() == Some("T")
        });
    }
    let env = vec![("TENURE_KEY".into(), "k".into())];
    let not_started = |error: &StartError| {
        tell(&format!("not started {error:?}"));
        ExitCode::from(error.exit_code(&script.argv[0]))
    };
    let launch = Launch::new(script.argv.clone(), env);
    if let Some(ordering) = script.word("cancel") {
        // The guardian is stopped, so the orders are sent and no report comes.
        let start = tokio::time::timeout(ordering, supervisor.start(launch)).await;
        assert!(start.is_err(), "the guardian is stopped");
        tell("ordered");
        wait_for("the command's readiness", || Path::new("ready").exists());
        supervisor.cancel_start().await;
        return ExitCode::SUCCESS;
    }
    let pid = match supervisor.start(launch).await {
        Ok(pid) => pid,
        Err(error) => return not_started(&error),
    };
    if waits {
        wait_for("the command's readiness", || Path::new("ready").exists());
        if let Some(deadline) = script.deadline() {
            supervisor.arm(deadline);
        }
        tell("ready");
    }
    let mut renewals = tokio::time::interval(script.word("renew").unwrap_or(never));
    renewals.tick().await;
    // sleep: the time at which the probe reports the loss of the lock.
    let loss = tokio::time::sleep(script.word("stop").unwrap_or(never));
    tokio::pin!(loss);
    let mut lost = false;
    // sleep: the time at which the probe moves the deadline back.
    let back = tokio::time::sleep(script.word("back").unwrap_or(never));
    tokio::pin!(back);
    let mut moved = false;
    loop {
        tokio::select! {
            event = supervisor.next() => match event {
                Event::Started => {
                    tell(&format!("started {pid}"));
                    if script.word("waive").is_some() {
                        supervisor.waive();
                    }
                }
                Event::NotStarted(error) => return not_started(&error),
                event => {
                    tell(&format!("{event:?}"));
                    if let Event::Ended(Ended { status, .. }) = event {
                        return ExitCode::from(status.map_or(99, |status| status.exit_code()));
                    }
                }
            },
            signal = inbox.recv() => {
                // As `tenure run` does: USR1 and USR2 go to the command alone.
                let to = if [10, 12].contains(&signal) { Recipient::Leader } else { Recipient::Group };
                supervisor.signal(signal, to);
            }
            _ = renewals.tick() => supervisor.arm(script.deadline().expect("renew needs term and kill")),
            () = &mut loss, if !lost => {
                lost = true;
                supervisor.stop(StopReason::Lost, script.word("grace").unwrap_or_default());
            }
            () = &mut back, if !moved => {
                moved = true;
                supervisor.arm(without_grace(now()));
            }
        }
    }
}
