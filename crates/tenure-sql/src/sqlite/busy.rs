//! SQLite's busy handler: lets a statement wait, until a deadline, while another process has the file locked.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// Pause after each of the first tries. A process that takes one lock after the other leaves only short gaps
/// between its transactions, and longer pauses would miss all of them.
const SHORT_PAUSE: Duration = Duration::from_micros(100);

/// Pause after each try beyond [`SHORT_PAUSES`]: the other process is slow or stopped.
const LONG_PAUSE: Duration = Duration::from_millis(2);
/// Number of tries with a short pause, at least 50 ms in sum.
const SHORT_PAUSES: i32 = 500;

thread_local! {
    /// Time until which statements of this thread wait for locks; `None` for no limit.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Installs the busy handler in a connection: its statements wait for locks until the deadline of their thread.
pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait as fn(i32) -> bool))
}

/// Sets the deadline of this thread's statements to `limit` after `since`.
pub(super) fn set_deadline(since: Instant, limit: Duration) {
    DEADLINE.set(since.checked_add(limit));
}

/// The busy handler, which SQLite calls each time it finds the file locked. `tries` counts the calls for one
/// statement. Pauses and returns `true` to try again; returns `false` after the deadline.
fn wait(tries: i32) -> bool {
    let left = match DEADLINE.get() {
        Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        None => Duration::MAX,
    };
    if left.is_zero() {
        return false;
    }
    let pause = if tries < SHORT_PAUSES {
        SHORT_PAUSE
    } else {
        LONG_PAUSE
    };
    std::thread::sleep(pause.min(left));
    true
}

/// Retries a statement for which SQLite does not call the busy handler, such as the change of the journal mode.
pub(super) fn retry<T>(mut run: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let mut tries = 0;
    loop {
        match run() {
            Err(error) if is_busy(&error) && wait(tries) => tries += 1,
            result => return result,
        }
    }
}

/// Returns whether the error means only that another process has the file locked.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}
