//! The meaning of signals for a verb that waits for a lock or holds one.

use rustix::process::Signal;

use crate::guardian::Inbox;
use crate::messages::Failure;

pub(super) fn listen() -> Result<Inbox, Failure> {
    Inbox::open().map_err(|error| Failure::system("cannot listen for signals", error))
}

pub(super) fn is(number: i32, signal: Signal) -> bool {
    number == signal.as_raw()
}

/// Returns whether a signal asks `tenure` to end: INT, TERM, HUP or QUIT. USR1 and USR2 are only forwarded to the
/// command.
pub(super) fn requests_termination(number: i32) -> bool {
    !is(number, Signal::USR1) && !is(number, Signal::USR2)
}

/// Waits for a signal that asks `tenure` to end.
///
/// # Cancel safety
/// Dropping the future loses no such signal.
pub(super) async fn termination_signal(inbox: &mut Inbox) -> i32 {
    loop {
        let signal = inbox.recv().await;
        if requests_termination(signal) {
            return signal;
        }
    }
}
