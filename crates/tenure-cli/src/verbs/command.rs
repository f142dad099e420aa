//! A command under a lock that is held: what it is told, how its run ended, and the lock given back.

use std::ffi::OsString;
use std::time::Duration;

use tenure::Guard;

use super::lock::{Held, Release};
use super::store::Chosen;
use super::ward::{Terms, Ward};
use crate::guardian::{Inbox, StartError, Status, Supervisor, Why, own_binary};
use crate::words::{Failure, warn};

/// The lock was lost, or `--max-hold` reached, and the command was stopped.
pub(super) const STOPPED: u8 = 123;
/// Nobody saw how the command ended.
const UNSEEN: u8 = 125;

/// How a command's run ended.
pub(super) enum Ending {
    /// By itself, with this code.
    Own(u8),
    /// It never ran; the code says why.
    NotStarted(u8),
    /// It was stopped, or not started, because its lock was lost or its time was over.
    Stopped {
        /// The reason, as the guardian names it.
        why: Why,
        /// A signal that came too late for the command to heed it.
        told_to_go: Option<i32>,
    },
}

/// Starts a guardian, which gets ready while the lock is waited for.
pub(super) fn guardian() -> Result<Supervisor, Failure> {
    own_binary()
        .and_then(|binary| Supervisor::spawn(&binary))
        .map_err(|error| Failure::system("cannot start the guardian process", error))
}

/// Runs the command under the lock, lingers afterwards if that was asked for, and gives the lock back.
///
/// Answers how the run ended, and whether the store has confirmed the release in time; if not, that was told.
pub(super) async fn run_under(
    held: Held,
    supervisor: Supervisor,
    inbox: &mut Inbox,
    terms: Terms,
    store: &Chosen,
    argv: &[OsString],
) -> (Result<Ending, Failure>, bool) {
    let mut ward = Ward::new(supervisor, inbox, &held, terms);
    let ending = match ward.start(argv.to_vec(), environment(&held, store)).await {
        Ok(()) => {
            let ended = ward.keep().await;
            if ended.stopped_by.is_none() {
                ward.linger().await;
            }
            Ok(match (ended.stopped_by, ended.status) {
                (Some(why), _) => Ending::Stopped {
                    why,
                    told_to_go: ward.told_to_go,
                },
                (None, status) => Ending::Own(status.map_or(UNSEEN, Status::exit_code)),
            })
        }
        Err(error) => not_started(&error, argv),
    };
    let told_lost = ward.lost;
    drop(ward);
    let confirmed = match held.release().await {
        Release::Confirmed => true,
        Release::WasLost(lost) => {
            if !told_lost {
                warn(&match ending {
                    Ok(Ending::Own(_)) => format!("{lost}; the command may have run without it at its end"),
                    Ok(Ending::Stopped { .. }) => format!("{lost}; the command had been stopped"),
                    Ok(Ending::NotStarted(_)) | Err(_) => lost.to_string(),
                });
            }
            true
        }
        Release::Unconfirmed(failure) => {
            failure.warn();
            false
        }
    };
    (ending, confirmed)
}

fn not_started(error: &StartError, argv: &[OsString]) -> Result<Ending, Failure> {
    let program = argv.first().cloned().unwrap_or_default();
    let failure = Failure::system(format!("cannot run {program:?}"), error);
    match error {
        StartError::Guardian => return Err(failure),
        StartError::Exec(_) | StartError::TooLate => failure.print(),
    }
    Ok(match error {
        StartError::TooLate => Ending::Stopped {
            why: Why::Deadline,
            told_to_go: None,
        },
        _ => Ending::NotStarted(error.exit_code(&program)),
    })
}

/// Where a claim itself is capped: late enough that the lock outlives a command that is stopped at `--max-hold`.
pub(super) fn claim_cap(max_hold: Option<Duration>, grace: Duration, lease: Duration) -> Option<Duration> {
    Some(max_hold? + grace + lease)
}

/// The exit code of a shell that a signal ended.
pub(super) fn ended_by(signal: i32) -> u8 {
    Status::Signaled(signal).exit_code()
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
