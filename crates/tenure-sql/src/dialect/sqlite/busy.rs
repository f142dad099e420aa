//! Waiting for other processes to leave the file: how long, and how often to ask again.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

/// The pause between two looks, as long as whoever has the file may be gone soon. A process that takes one lock
/// after the other leaves gaps that are shorter than this, so asking less often would mean not to be served.
const SHORT_PAUSE: Duration = Duration::from_micros(100);

/// The pause once the file has been kept for so many looks that its holder is slow, or stopped.
const LONG_PAUSE: Duration = Duration::from_millis(2);
const SHORT_PAUSES: i32 = 500;

thread_local! {
    /// Until when statements of this thread wait; `None` if that is farther than instants reach.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes every statement of this connection wait until the deadline of its thread.
pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait as fn(i32) -> bool))
}

/// Lets the statements of this thread wait until so long after `since`.
pub(super) fn set_deadline(since: Instant, limit: Duration) {
    DEADLINE.set(since.checked_add(limit));
}

/// Called by SQLite each time it finds the file locked; `true` asks it to look again.
fn wait(looks: i32) -> bool {
    let left = match DEADLINE.get() {
        Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        None => Duration::MAX,
    };
    if left.is_zero() {
        return false;
    }
    let pause = if looks < SHORT_PAUSES {
        SHORT_PAUSE
    } else {
        LONG_PAUSE
    };
    std::thread::sleep(pause.min(left));
    true
}

/// Runs a statement for which SQLite does not ask the busy handler, such as the change of the journal mode.
pub(super) fn retry<T>(mut run: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let mut looks = 0;
    loop {
        match run() {
            Err(error) if is_busy(&error) && wait(looks) => looks += 1,
            result => return result,
        }
    }
}

/// Whether another process is in the way, and nothing else is wrong.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}
