//! The demonstration: two holders are processes, and one of them is stopped for longer than its lease.

use std::io::Write;
use std::process::Command;

use rustix::process::Signal;

use crate::process::Process;

/// Tokens of the two holders, and what they printed about their writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Token of the holder that was stopped.
    pub old_token: u64,
    /// Token of the holder that took over.
    pub new_token: u64,
    /// What the new holder printed about its write.
    pub new_write: String,
    /// What the stopped holder printed about its later write.
    pub old_write: String,
}

/// Runs the demonstration. `holder` returns the command of a holder that writes the given balance. `tell` prints an
/// event.
///
/// # Panics
/// If a holder ends early, or prints nothing for a minute.
pub fn play(holder: impl Fn(i64) -> Command, tell: impl Fn(&str)) -> Ending {
    let mut a = Process::start(holder(100));
    let old_token = held(&a);
    tell(&format!("A holds the lock, with token {old_token}."));
    a.send(Signal::STOP);
    tell("A is stopped. Its lease goes on.");

    let mut b = Process::start(holder(200));
    let new_token = held(&b);
    tell(&format!(
        "A's lease has ended, and B holds the lock, with token {new_token}."
    ));
    let new_write = write(&mut b);
    tell(&format!("B writes 200: {new_write}."));

    a.send(Signal::CONT);
    let old_write = write(&mut a);
    tell(&format!(
        "A goes on, and writes 100 as if nothing had happened: {old_write}."
    ));
    Ending {
        old_token,
        new_token,
        new_write,
        old_write,
    }
}

/// Waits until a holder has the lock. Returns the holder's token.
fn held(holder: &Process) -> u64 {
    let held = holder.line_with("held ");
    held["held ".len()..].parse().expect("a token is a number")
}

/// Makes a holder write. Returns what it prints.
fn write(holder: &mut Process) -> String {
    writeln!(holder.stdin(), "write").expect("a holder reads");
    holder.line().expect("a holder says what became of its write")
}
