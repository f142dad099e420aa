//! What signals mean to a verb that waits or holds.
//! Hearing them, and sending them to a command, is the guardian's.

use rustix::process::Signal;

use crate::guardian::Inbox;

/// Whether a number is that signal's.
pub(super) fn is(number: i32, signal: Signal) -> bool {
    number == signal.as_raw()
}

/// Waits for a signal that tells us to go: INT, TERM, HUP or QUIT. The others are for a command, and there is none.
///
/// # Cancel safety
/// Dropping the future loses no such signal.
pub(super) async fn order_to_go(inbox: &mut Inbox) -> i32 {
    loop {
        let signal = inbox.recv().await;
        if !is(signal, Signal::USR1) && !is(signal, Signal::USR2) {
            return signal;
        }
    }
}
