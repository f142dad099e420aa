//! `tenure hold`: holds a lock for another program, which reads events and closes stdin to release the lock.

use std::io::{self, Stdout};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tenure::{ClaimRef, Client, Instant, Lost, LostCause};
use tokio::sync::Notify;

use super::holder::{HolderSearch, with_holder};
use super::lock::{HeldLock, LockRequest, Outcome, Release};
use super::signals::{listen, termination_signal};
use super::stdin::{self, Stdin};
use super::store::{ChosenStore, disconnect};
use super::wait_line::show_while;
use crate::args::{Global, Hold};
use crate::guardian::{Inbox, now, reached};
use crate::messages::{Blame, Failure, note, note_as_is, warn};
use crate::output::{self, Event, EventWriter, Reader};

const DONE: u8 = 0;
const NOT_HELD: u8 = 1;
const LOST: u8 = 4;

/// Limits of the time between two looks for a renewal that was confirmed.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn hold(global: &Global, hold: &Hold) -> Result<u8, Failure> {
    if !hold.no_stdin && stdin::is_the_null_device() {
        return Err(Failure::usage(
            "stdin is the null device, so the lock would be released at once",
            io::Error::other("a hold ends with its stdin: keep a pipe open, or say --no-stdin"),
        ));
    }
    let request = LockRequest::of(&hold.lock)?;
    let store = ChosenStore::of(global)?;
    let done = hold_in(&store, &request, hold, global).await;
    if let Err(failure) = &done
        && failure.blame == Blame::Store
    {
        print_event(&Event::Error {
            message: failure.to_string(),
        })?;
    }
    done
}

async fn hold_in(
    store: &ChosenStore,
    request: &LockRequest<'_>,
    hold: &Hold,
    global: &Global,
) -> Result<u8, Failure> {
    let mut inbox = listen()?;
    let mut stdin = if hold.no_stdin {
        Stdin::ignored()
    } else {
        Stdin::watched()
            .map_err(|error| Failure::system("cannot start the thread that reads stdin", error))?
    };
    let connected = tokio::select! {
        biased;
        _ = termination_signal(&mut inbox) => return cancelled(),
        connected = request.connect(store) => connected,
    };
    let client = connected?;
    let done = acquire_and_hold(&client, request, hold, &mut inbox, &mut stdin, global).await;
    disconnect(&client).await;
    done
}

async fn acquire_and_hold(
    client: &Client,
    request: &LockRequest<'_>,
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
        // If stdout has lost its reader, printing the next event fails and ends `hold`.
        let _ = print_event(&Event::Waiting { key, claim });
    };
    // The end of stdin cancels only a wait: if stdin has ended and the lock is free, `hold` still acquires the lock.
    let stdin_ended_while_waiting = async {
        stdin.ended().await;
        waits.notified().await;
    };
    let mut holder = request.holder(client);
    let acquired = request.acquire(client, hold.lock.max_hold, on_waiting);
    let outcome = tokio::select! {
        biased;
        _ = termination_signal(inbox) => return cancelled(),
        outcome = show_while(global, &mut holder, acquired) => outcome?,
        () = stdin_ended_while_waiting => return cancelled(),
    };
    match outcome {
        Outcome::Held(held) => {
            drop(holder);
            note_as_is(!global.verbose, &held.words_of_the_grant());
            print_event(&Event::Acquired(held.described(client.profile())))?;
            tell_the_releasing_key(global, hold);
            hold_until_end(held, hold, inbox, stdin).await
        }
        Outcome::Busy => {
            let names = format!("busy: {}", request.one_of_names());
            let holder = report_holder(global, names, &mut holder).await;
            not_held(&Event::Busy { holder })
        }
        Outcome::Timeout => {
            let names = format!("{} was busy for all of --wait", request.one_of_names());
            let holder = report_holder(global, names, &mut holder).await;
            not_held(&Event::Timeout { holder })
        }
    }
}

/// Prints by which key a user at a terminal releases the lock, except with `-q`. `--at-least` is in force after Ctrl-D, but
/// not after Ctrl-C.
fn tell_the_releasing_key(global: &Global, hold: &Hold) {
    if !hold.no_stdin && stdin::is_our_terminal() {
        let key = if hold.lock.at_least.is_zero() {
            "Ctrl-D"
        } else {
            "Ctrl-C"
        };
        note(global.quiet, &format!("the lock is held; {key} releases it"));
    }
}

/// Prints a note that ends with the holder, except with `-q`. Returns the holder's label.
async fn report_holder(global: &Global, words: String, holder: &mut HolderSearch<'_>) -> Option<String> {
    let words = with_holder(words, holder).await;
    note_as_is(global.quiet, &words);
    holder.label()
}

fn cancelled() -> Result<u8, Failure> {
    not_held(&Event::Cancelled)
}

fn not_held(why: &Event) -> Result<u8, Failure> {
    print_event(why)?;
    Ok(NOT_HELD)
}

/// Holds the lock until stdin ends (and `--at-least` is over), a signal comes, or the lock is lost. Then releases the
/// lock, unless it was lost.
async fn hold_until_end(
    held: HeldLock,
    hold: &Hold,
    inbox: &mut Inbox,
    stdin: &mut Stdin,
) -> Result<u8, Failure> {
    let earliest = now() + hold.lock.at_least;
    let release_due = async {
        stdin.ended().await;
        reached(earliest).await;
    };
    let lost = tokio::select! {
        biased;
        lost = held.lost() => Some(lost),
        _ = termination_signal(inbox) => None,
        () = release_due => None,
        failed = report_renewals(&held) => return Err(failed),
    };
    if let Some(lost) = lost {
        return report_loss(&held.words_of(&lost), &lost);
    }
    match held.release().await {
        Release::Confirmed => {
            print_event(&Event::Released)?;
            Ok(DONE)
        }
        Release::WasLost(lost) => report_loss(&lost.to_string(), &lost),
        Release::Unconfirmed(failure) => Err(failure),
    }
}

/// Prints an event after each renewal, as soon as the reader has left room for it: a `hold` that waits for its reader
/// renews nothing. Returns only if an event cannot be printed.
async fn report_renewals(held: &HeldLock) -> Failure {
    // The watchdog renews after a third of the lease. A reader that counts `valid_ms` down has two thirds left then, so
    // the event may be late by this much.
    let interval = (held.lease / 30).clamp(MIN_INTERVAL, MAX_INTERVAL);
    let mut reported = held.local_deadline();
    loop {
        reached(now() + interval).await;
        if output::reader() == Reader::Behind {
            continue;
        }
        let deadline = held.local_deadline();
        // A store that keeps the lock for less time than before moves the deadline back.
        if deadline != reported
            && deadline != Instant::ORIGIN
            && let Err(failed) = print_event(&Event::Renewed {
                valid_ms: output::ms(deadline - now()),
            })
        {
            return failed;
        }
        reported = deadline;
    }
}

fn report_loss(words: &str, lost: &Lost) -> Result<u8, Failure> {
    let cause = match &lost.cause {
        // Cannot happen: `hold` closes its client only after it has reported a loss. Report `Missing` even so, because
        // the help of `hold` does not list `Closed`.
        LostCause::Closed => &LostCause::Missing,
        cause => cause,
    };
    // A write waits while its pipe is full, so what may have to wait comes last.
    let is_behind = output::reader() == Reader::Behind;
    if is_behind {
        warn(words);
    }
    let printed = print_event(&Event::Lost {
        cause: cause.as_str(),
    });
    if !is_behind {
        warn(words);
    }
    printed.map(|()| LOST)
}

/// Prints an event to stdout. A failure ends `hold`: without a reader the lock protects nothing.
fn print_event(event: &Event) -> Result<(), Failure> {
    static EVENTS: LazyLock<Mutex<EventWriter<Stdout>>> =
        LazyLock::new(|| Mutex::new(EventWriter::new(io::stdout())));
    let written = EVENTS.lock().expect("printing does not panic").write(event);
    written.map_err(|error| Failure::system("cannot write the events to stdout", error))
}
