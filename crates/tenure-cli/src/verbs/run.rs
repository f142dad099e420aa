//! `tenure run`: a command under a lock.

use std::time::Duration;

use super::command::{Ending, STOPPED, claim_cap, ended_by, guardian, run_under};
use super::holder::{HolderSearch, with_holder};
use super::lock::{Outcome, Wanted};
use super::signals::{listen, order_to_go};
use super::store::{Chosen, leave};
use super::wait_line::show_while;
use super::ward::Terms;
use crate::args::{Global, Run, grace};
use crate::words::{Failure, note_as_is};

/// Runs the command, and gives the exit code.
pub(super) async fn run(global: &Global, run: &Run) -> Result<u8, Failure> {
    let wanted = Wanted::of(&run.lock)?;
    let store = Chosen::of(global)?;
    let mut inbox = listen()?;
    // Before the store is touched: the guardian gets ready while we connect and wait.
    let supervisor = guardian()?;

    let connected = tokio::select! {
        biased;
        signal = order_to_go(&mut inbox) => return Ok(ended_by(signal)),
        connected = wanted.connect(&store) => connected,
    };
    let client = connected?;
    let (quiet, names) = (!global.verbose, wanted.names());
    let waits = move |_: &_| note_as_is(quiet, &format!("waiting for {names}"));
    let lease = wanted.lease(&client);
    let cap = claim_cap(run.lock.max_hold, grace(run.grace, lease), lease);
    let mut holder = wanted.holder(&client);
    let acquired = tokio::select! {
        biased;
        signal = order_to_go(&mut inbox) => Err(signal),
        acquired = show_while(global, &mut holder, wanted.acquire(&client, cap, waits)) => Ok(acquired),
    };
    let outcome = match acquired {
        Ok(Ok(Outcome::Held(held))) => {
            drop(holder);
            let terms = terms(run, lease);
            let (ending, confirmed) =
                run_under(held, supervisor, &mut inbox, terms, &store, &run.command).await;
            let code = ending.map(|ending| match ending {
                Ending::Own(code) | Ending::NotStarted(code) => code,
                Ending::Stopped { .. } => STOPPED,
            });
            if !confirmed {
                // The limit is used up: the rest is the lease's.
                return code;
            }
            code
        }
        Ok(Ok(Outcome::Busy)) => Ok(not_run(global, run, "busy", &wanted, holder).await),
        Ok(Ok(Outcome::Timeout)) => Ok(not_run(global, run, "not free within --wait", &wanted, holder).await),
        Ok(Err(failure)) => Err(failure),
        Err(signal) => Ok(ended_by(signal)),
    };
    leave(&client).await;
    outcome
}

fn terms(run: &Run, lease: Duration) -> Terms {
    Terms {
        on_lost: run.on_lost,
        grace: grace(run.grace, lease),
        max_hold: run.lock.max_hold,
        at_least: run.lock.at_least,
    }
}

/// Notes that the command did not run, and who holds the lock. A caller that gives 0 for `--busy-exit` expects that the lock
/// can be busy, and gets no note: cron would mail it.
async fn not_run(
    global: &Global,
    run: &Run,
    why: &str,
    wanted: &Wanted<'_>,
    mut holder: HolderSearch<'_>,
) -> u8 {
    if run.busy_exit != 0 && !global.quiet {
        let busy = with_holder(wanted.one_of_names(), &mut holder).await;
        note_as_is(false, &format!("{why}: {busy}; the command was not run"));
    }
    run.busy_exit
}
