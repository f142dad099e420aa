//! `tenure hold`: a lock for another program, which reads events and closes our stdin to release.

use std::io;
use std::sync::Arc;

use tenure::{ClaimRef, Client, Lost, LostCause};
use tokio::sync::Notify;

use super::holder::with_holder;
use super::lock::{Held, Outcome, Release, Wanted};
use super::signals::{listen, order_to_go};
use super::stdin::{self, Stdin};
use super::store::{Chosen, leave};
use super::wait_line::show_while;
use crate::args::{Global, Hold};
use crate::guardian::{Inbox, now, reached};
use crate::output::Event;
use crate::words::{Blame, Failure, note_as_is, warn};

const DONE: u8 = 0;
const NOT_HELD: u8 = 1;
const LOST: u8 = 4;

/// Holds the lock, tells what happens to it, and gives the exit code.
pub(super) async fn hold(global: &Global, hold: &Hold) -> Result<u8, Failure> {
    if !hold.no_stdin && stdin::is_the_null_device() {
        return Err(Failure::usage(
            "stdin is the null device, so the lock would be released at once",
            io::Error::other("a hold ends with its stdin: keep a pipe open, or say --no-stdin"),
        ));
    }
    let wanted = Wanted::of(&hold.lock)?;
    let store = Chosen::of(global)?;
    let done = hold_in(&store, &wanted, hold, global).await;
    if let Err(failure) = &done
        && failure.blame == Blame::Store
    {
        tell(&Event::Error {
            message: failure.to_string(),
        })?;
    }
    done
}

async fn hold_in(store: &Chosen, wanted: &Wanted<'_>, hold: &Hold, global: &Global) -> Result<u8, Failure> {
    let mut inbox = listen()?;
    let mut stdin = if hold.no_stdin {
        Stdin::ignored()
    } else {
        Stdin::watched()
            .map_err(|error| Failure::system("cannot start the thread that reads stdin", error))?
    };
    let connected = tokio::select! {
        biased;
        _ = order_to_go(&mut inbox) => return cancelled(),
        connected = wanted.connect(store) => connected,
    };
    let client = connected?;
    let done = acquire_and_keep(&client, wanted, hold, &mut inbox, &mut stdin, global).await;
    leave(&client).await;
    done
}

async fn acquire_and_keep(
    client: &Client,
    wanted: &Wanted<'_>,
    hold: &Hold,
    inbox: &mut Inbox,
    stdin: &mut Stdin,
    global: &Global,
) -> Result<u8, Failure> {
    let waits = Arc::new(Notify::new());
    let begins_to_wait = waits.clone();
    let on_waiting = move |claim: &ClaimRef| {
        begins_to_wait.notify_one();
        let (key, claim) = (claim.key.to_string(), claim.id.to_string());
        // A reader that is gone is noticed with the next event.
        let _ = tell(&Event::Waiting { key, claim });
    };
    // A lock that is free is had, whatever stdin does.
    let ended_in_vain = async {
        stdin.ended().await;
        waits.notified().await;
    };
    let mut holder = wanted.holder(client);
    let acquired = wanted.acquire(client, hold.lock.max_hold, on_waiting);
    let outcome = tokio::select! {
        biased;
        _ = order_to_go(inbox) => return cancelled(),
        outcome = show_while(global, &mut holder, acquired) => outcome?,
        () = ended_in_vain => return cancelled(),
    };
    match outcome {
        Outcome::Held(held) => {
            drop(holder);
            tell(&Event::Acquired(held.described(client.profile())))?;
            keep(held, hold, inbox, stdin).await
        }
        Outcome::Busy => {
            if !global.quiet {
                let busy = with_holder(wanted.one_of_names(), &mut holder).await;
                note_as_is(false, &format!("busy: {busy}"));
            }
            not_held(&Event::Busy)
        }
        Outcome::Timeout => {
            if !global.quiet {
                let names = format!("{} was busy for all of --wait", wanted.one_of_names());
                note_as_is(false, &with_holder(names, &mut holder).await);
            }
            not_held(&Event::Timeout)
        }
    }
}

fn cancelled() -> Result<u8, Failure> {
    not_held(&Event::Cancelled)
}

fn not_held(why: &Event) -> Result<u8, Failure> {
    tell(why)?;
    Ok(NOT_HELD)
}

/// Holds until the caller wishes its end, or it is lost.
async fn keep(held: Held, hold: &Hold, inbox: &mut Inbox, stdin: &mut Stdin) -> Result<u8, Failure> {
    let earliest = now() + hold.lock.at_least;
    let enough = async {
        stdin.ended().await;
        reached(earliest).await;
    };
    let lost = tokio::select! {
        biased;
        lost = held.lost() => Some(lost),
        _ = order_to_go(inbox) => None,
        () = enough => None,
    };
    if let Some(lost) = lost {
        return lose(&lost);
    }
    match held.release().await {
        Release::Confirmed => {
            tell(&Event::Released)?;
            Ok(DONE)
        }
        Release::WasLost(lost) => lose(&lost),
        Release::Unconfirmed(failure) => Err(failure),
    }
}

fn lose(lost: &Lost) -> Result<u8, Failure> {
    warn(&lost.to_string());
    let cause = match &lost.cause {
        // Our own client is closed when nothing is held any more.
        LostCause::Closed => &LostCause::Missing,
        cause => cause,
    };
    tell(&Event::Lost {
        cause: cause.as_str(),
    })?;
    Ok(LOST)
}

/// A reader that is gone knows nothing of the lock: there is no use in holding it.
fn tell(event: &Event) -> Result<(), Failure> {
    let told = event.write(io::stdout().lock());
    told.map_err(|error| Failure::system("cannot write the events to stdout", error))
}
