//! `tenure run`: runs a command under a lock.

use std::time::{Duration, Instant as Stopwatch};

use super::command::{Ending, STOPPED, claim_cap, ended_by, guardian, run_under};
use super::holder::{HolderSearch, with_holder};
use super::lock::{LockRequest, Outcome};
use super::signals::{listen, termination_signal};
use super::store::{ChosenStore, disconnect};
use super::supervise::SupervisionOptions;
use super::wait_line::show_while;
use crate::args::{Global, Run, grace};
use crate::messages::{Failure, note_as_is};

/// A run that takes less time than this does not disconnect from a file, which would take a noticeable part of that time.
const SHORT_RUN: Duration = Duration::from_secs(1);

pub(super) async fn run(global: &Global, run: &Run) -> Result<u8, Failure> {
    let began = Stopwatch::now();
    let request = LockRequest::of(&run.lock)?;
    let store = ChosenStore::of(global)?;
    let mut inbox = listen()?;
    // Start the guardian before connecting, because it takes longer to start than most stores take to connect.
    let supervisor = guardian()?;
    let client = tokio::select! {
        biased;
        signal = termination_signal(&mut inbox) => return Ok(ended_by(signal)),
        connected = request.connect(&store) => connected?,
    };
    let (quiet, names) = (!global.verbose, request.names());
    let waits = move |_: &_| note_as_is(quiet, &format!("waiting for {names}"));
    let lease = request.lease(&client);
    let cap = claim_cap(run.lock.max_hold, grace(run.grace, lease), lease);
    let mut holder = request.holder(&client);
    let acquired = tokio::select! {
        biased;
        signal = termination_signal(&mut inbox) => Err(signal),
        acquired = show_while(global, &mut holder, request.acquire(&client, cap, waits)) => Ok(acquired),
    };
    let outcome = match acquired {
        Ok(Ok(Outcome::Held(held))) => {
            drop(holder);
            let options = options(global, run, held.lease);
            let (ending, confirmed) =
                run_under(held, supervisor, &mut inbox, options, &store, &run.command).await;
            let code = ending.map(|ending| match ending {
                Ending::Own(code) | Ending::NotStarted(code) => code,
                Ending::Stopped { .. } => STOPPED,
            });
            if !confirmed || (store.is_file() && began.elapsed() < SHORT_RUN) {
                // Skip the disconnect. If the release has failed or used up its time limit, the lock ends with its
                // lease. A file has the release, and its log is short after a short run, so the end of this process
                // may close it.
                return code;
            }
            code
        }
        Ok(Ok(Outcome::Busy)) => Ok(not_run(global, run, "busy", &request, holder).await),
        Ok(Ok(Outcome::Timeout)) => {
            Ok(not_run(global, run, "not free within --wait", &request, holder).await)
        }
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(ended_by(signal)),
    };
    disconnect(&client).await;
    outcome
}

fn options(global: &Global, run: &Run, lease: Duration) -> SupervisionOptions {
    SupervisionOptions {
        on_lost: run.on_lost,
        grace: grace(run.grace, lease),
        max_hold: run.lock.max_hold,
        at_least: run.lock.at_least,
        verbose: global.verbose,
    }
}

/// Prints that the command did not run, and the holder of the lock. Prints nothing with `-q` or `--busy-exit 0`: such a
/// caller expects busy locks, and cron would mail the message. Returns `--busy-exit`.
async fn not_run(
    global: &Global,
    run: &Run,
    why: &str,
    request: &LockRequest<'_>,
    mut holder: HolderSearch<'_>,
) -> u8 {
    if run.busy_exit != 0 && !global.quiet {
        let busy = with_holder(request.one_of_names(), &mut holder).await;
        note_as_is(false, &format!("{why}: {busy}; the command was not run"));
    }
    run.busy_exit
}
