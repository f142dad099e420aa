//! `tenure run`: a command under a lock.
//! How the command is kept and stopped is `ward`'s.

use std::ffi::OsString;
use std::time::Duration;

use tenure::Guard;

use super::lock::{Held, Outcome, Release, Wanted};
use super::signals::order_to_go;
use super::store::{Chosen, leave};
use super::ward::{Terms, Ward};
use crate::args::{Global, Run};
use crate::guardian::{Inbox, StartError, Status, Supervisor, own_binary};
use crate::words::{Failure, note, warn};

/// The lock was lost, or `--max-hold` reached, and the command was stopped.
const STOPPED: u8 = 123;
/// Our own failure.
const FAILED: u8 = 125;
/// What a signal's number is added to.
const SIGNALED: i32 = 128;

/// Runs the command, and gives the exit code.
pub(super) async fn run(global: &Global, run: &Run) -> Result<u8, Failure> {
    let wanted = Wanted::of(&run.lock)?;
    let store = Chosen::of(global)?;
    let mut inbox = Inbox::open().map_err(|error| Failure::system("cannot listen for signals", error))?;
    // Before the store is touched: the guardian gets ready while we connect and wait.
    let supervisor = own_binary()
        .and_then(|binary| Supervisor::spawn(&binary))
        .map_err(|error| Failure::system("cannot start the guardian process", error))?;

    let connected = tokio::select! {
        biased;
        signal = order_to_go(&mut inbox) => return Ok(ended_by(signal)),
        connected = wanted.connect(&store) => connected,
    };
    let client = connected?;
    let (quiet, names) = (!global.verbose, wanted.names());
    let waits = move |_: &_| note(quiet, &format!("waiting for {names}"));
    let acquired = tokio::select! {
        biased;
        signal = order_to_go(&mut inbox) => Err(signal),
        acquired = wanted.acquire(&client, claim_cap(run), waits) => Ok(acquired),
    };
    let outcome = match acquired {
        Ok(Ok(Outcome::Held(held))) => {
            let ward = Ward::new(supervisor, &mut inbox, &held, terms(run));
            let ran = run_in(ward, environment(&held, &store), &run.command).await;
            if !give_back(held, &ran).await {
                // The limit is used up: the rest is the lease's.
                return ran.code;
            }
            ran.code
        }
        Ok(Ok(Outcome::Busy | Outcome::Timeout)) => {
            tell_busy(global, run, &wanted);
            Ok(run.busy_exit)
        }
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(ended_by(signal)),
    };
    leave(&client).await;
    outcome
}

/// What became of the command.
struct Ran {
    code: Result<u8, Failure>,
    /// The loss of the lock was told already.
    told_lost: bool,
}

/// Runs the command in the ward, and lingers afterwards if that was asked for.
async fn run_in(mut ward: Ward<'_>, env: Vec<(OsString, OsString)>, argv: &[OsString]) -> Ran {
    let code = match ward.start(argv.to_vec(), env).await {
        Ok(()) => {
            let ended = ward.keep().await;
            if ended.stopped_by.is_none() {
                ward.linger().await;
            }
            Ok(match (ended.stopped_by, ended.status) {
                (Some(_), _) => STOPPED,
                (None, status) => status.map_or(FAILED, Status::exit_code),
            })
        }
        Err(error) => not_started(&error, argv),
    };
    Ran {
        code,
        told_lost: ward.has_lost(),
    }
}

fn not_started(error: &StartError, argv: &[OsString]) -> Result<u8, Failure> {
    let program = argv.first().cloned().unwrap_or_default();
    let failure = Failure::system(format!("cannot run {program:?}"), error);
    match error {
        StartError::Guardian => Err(failure),
        StartError::Exec(_) | StartError::TooLate => {
            failure.print();
            Ok(error.exit_code(&program))
        }
    }
}

/// Gives the lock back. False if the store has not confirmed it in time, which is told.
async fn give_back(held: Held, ran: &Ran) -> bool {
    match held.release().await {
        Release::Confirmed => true,
        Release::WasLost(lost) => {
            if !ran.told_lost {
                warn(&format!("{lost}; the command may have run without it at its end"));
            }
            true
        }
        Release::Unconfirmed(error) => {
            let what = "the store has not confirmed the release; the lock ends with its lease";
            let failure = error.map_or_else(|| Failure::silence(what), |error| Failure::of(what, &error));
            warn(&failure.to_string());
            false
        }
    }
}

fn terms(run: &Run) -> Terms {
    Terms {
        on_lost: run.on_lost,
        grace: run.grace(),
        max_hold: run.lock.max_hold,
        at_least: run.lock.at_least,
    }
}

/// Where the claim itself is capped: late enough that the lock outlives a command that is stopped at `--max-hold`.
fn claim_cap(run: &Run) -> Option<Duration> {
    let max_hold = run.lock.max_hold?;
    Some(max_hold + run.grace() + run.lock.lease)
}

fn ended_by(signal: i32) -> u8 {
    // Signals end at 64.
    u8::try_from(SIGNALED + signal).unwrap_or(u8::MAX)
}

/// Who says that busy is as good as done wants to hear nothing: cron mails every word.
fn tell_busy(global: &Global, run: &Run, wanted: &Wanted<'_>) {
    if run.busy_exit != 0 {
        note(
            global.quiet,
            &format!("{} is busy; the command was not run", wanted.names()),
        );
    }
}

/// What the command is told of its lock: of several keys, one value a line.
fn environment(held: &Held, store: &Chosen) -> Vec<(OsString, OsString)> {
    let lines = |value: fn(&Guard) -> String| {
        let values: Vec<String> = held.members().iter().map(value).collect();
        values.join("\n")
    };
    let token = |guard: &Guard| {
        guard
            .token()
            .map_or(String::new(), |token| u64::from(token).to_string())
    };
    [
        ("TENURE_KEY", lines(|guard| guard.key().to_string())),
        ("TENURE_TOKEN", lines(token)),
        ("TENURE_CLAIM", lines(|guard| guard.claim().id.to_string())),
        ("TENURE_STORE", store.shown.clone()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into()
}
