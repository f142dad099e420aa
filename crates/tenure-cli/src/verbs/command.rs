//! Runs a command under a held lock: its environment, how its run ended, and the release of the lock.

use std::ffi::OsString;
use std::time::Duration;

use tenure::Guard;

use super::lock::{HeldLock, Release};
use super::store::ChosenStore;
use super::supervise::{SupervisedCommand, SupervisionOptions};
use crate::guardian::{Inbox, StartError, Status, StopReason, Supervisor, own_binary};
use crate::messages::{Failure, note_as_is, warn};

/// Exit code if the lock was lost, or `--max-hold` was reached, and the command was stopped.
pub(super) const STOPPED: u8 = 123;
/// Exit code if the command's own exit status is unknown.
const UNKNOWN_STATUS: u8 = 125;

/// How the run of a command ended.
pub(super) enum Ending {
    /// The command ended by itself, with this exit code.
    Own(u8),
    /// The command never ran. The exit code says why.
    NotStarted(u8),
    /// The command was stopped, or not started, because its lock was lost or about to end, or `--max-hold` was reached.
    Stopped {
        /// The reason for the stop.
        why: StopReason,
        /// The first signal that asked `tenure` to end: INT, TERM or QUIT, or HUP after the stop had begun. `None` if none
        /// came.
        ending_signal: Option<i32>,
    },
}

/// Starts a guardian. It gets ready while `tenure` waits for the lock.
pub(super) fn guardian() -> Result<Supervisor, Failure> {
    own_binary()
        .and_then(|binary| Supervisor::spawn(&binary))
        .map_err(|error| Failure::system("cannot start the guardian process", error))
}

/// Runs the command under the lock, waits for `--at-least`, and releases the lock.
///
/// Returns how the run ended, and true if the lock was released or lost. Warns, and returns false, if the store did
/// not confirm the release in time.
pub(super) async fn run_under(
    held: HeldLock,
    supervisor: Supervisor,
    inbox: &mut Inbox,
    options: SupervisionOptions,
    store: &ChosenStore,
    argv: &[OsString],
) -> (Result<Ending, Failure>, bool) {
    let (quiet, names) = (!options.verbose, held.names());
    note_as_is(quiet, &held.words_of_the_grant());
    let mut supervised = SupervisedCommand::new(supervisor, inbox, &held, options);
    let ended = match supervised.start(argv.to_vec(), environment(&held, store)).await {
        Ok(()) => supervised.run_to_end().await,
        Err(error) => Err(error),
    };
    let ending = match ended {
        Ok(ended) => {
            if ended.stopped_by.is_none() {
                supervised.wait_at_least().await;
            }
            Ok(match (ended.stopped_by, ended.status) {
                (Some(why), _) => Ending::Stopped {
                    why,
                    ending_signal: supervised.ending_signal,
                },
                (None, status) => Ending::Own(status.map_or(UNKNOWN_STATUS, Status::exit_code)),
            })
        }
        Err(error) => not_started(&error, argv),
    };
    let loss_printed = supervised.lost;
    let supervisor = supervised.into_supervisor();
    // The guardian exits while the lock is released.
    let ((), released) = tokio::join!(supervisor.reap_guardian(), held.release());
    let confirmed = match released {
        Release::Confirmed => {
            note_as_is(quiet, &format!("released {names}"));
            true
        }
        Release::WasLost(lost) => {
            if !loss_printed {
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
    let why = match error {
        StartError::Guardian | StartError::JobControl(_) | StartError::Processes(_) => return Err(failure),
        StartError::TooLate => Some(StopReason::Deadline),
        StartError::Lost(_) => Some(StopReason::Lost),
        StartError::Exec(_) | StartError::Signal(_) => None,
    };
    // A signal ends `tenure` without a message, as while it waits for the lock.
    if !matches!(error, StartError::Signal(_)) {
        failure.print();
    }
    Ok(match why {
        Some(why) => Ending::Stopped {
            why,
            ending_signal: None,
        },
        None => Ending::NotStarted(error.exit_code(&program)),
    })
}

/// Returns the maximum time for which the lock is held, `max_hold + grace + lease`: a command that is stopped at
/// `--max-hold` ends before its lock does. `None` without `--max-hold`.
pub(super) fn claim_cap(max_hold: Option<Duration>, grace: Duration, lease: Duration) -> Option<Duration> {
    Some(max_hold? + grace + lease)
}

/// Returns the exit code that shells show for a process that `signal` ended: 128 plus the signal's number.
pub(super) fn ended_by(signal: i32) -> u8 {
    Status::Signaled(signal).exit_code()
}

/// Returns the variables that tell the command about its lock. For several keys, each variable except `TENURE_STORE`
/// has one line for each key.
fn environment(held: &HeldLock, store: &ChosenStore) -> Vec<(OsString, OsString)> {
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
        ("TENURE_STORE", store.masked_url.clone()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into()
}
