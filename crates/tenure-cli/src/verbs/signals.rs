//! What signals mean to a verb that waits or holds.

use rustix::process::Signal;

use crate::guardian::Inbox;
use crate::words::Failure;

/// Starts to hear the signals that a verb acts on.
pub(super) fn listen() -> Result<Inbox, Failure> {
    Inbox::open().map_err(|error| Failure::system("cannot listen for signals", error))
}

/// Whether a number is that signal's.
pub(super) fn is(number: i32, signal: Signal) -> bool {
    number == signal.as_raw()
}

/// Whether a signal tells us to go: INT, TERM, HUP or QUIT. The others, USR1 and USR2, are for a command alone.
pub(super) fn orders_to_go(number: i32) -> bool {
    !is(number, Signal::USR1) && !is(number, Signal::USR2)
}

/// Waits for a signal that tells us to go.
///
/// # Cancel safety
/// Dropping the future loses no such signal.
pub(super) async fn order_to_go(inbox: &mut Inbox) -> i32 {
    loop {
        let signal = inbox.recv().await;
        if orders_to_go(signal) {
            return signal;
        }
    }
}
