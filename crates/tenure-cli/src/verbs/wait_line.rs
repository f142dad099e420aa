//! What a verb prints while it waits for a lock: on a terminal one line that is updated each second, elsewhere one plain line.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::holder::{HolderSearch, LOOK_INTERVAL};
use crate::args::Global;
use crate::status_line;
use crate::words::note_as_is;

/// A wait shorter than this prints nothing and asks the store nothing.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(1);
/// When the plain line is printed, where stderr is no terminal.
const PLAIN_LINE_AFTER: Duration = Duration::from_secs(10);

/// Waits for `acquired`, and meanwhile shows the holder that it waits for. Shows nothing with `-q` or `--json`.
///
/// `acquired` is always polled first, so a look at the store delays no lock.
///
/// # Cancel safety
/// As that of `acquired`. The line is erased when this future ends or is dropped.
pub(super) async fn show_while<T>(
    global: &Global,
    search: &mut HolderSearch<'_>,
    acquired: impl Future<Output = T>,
) -> T {
    let is_silent = global.quiet || global.json;
    tokio::select! {
        biased;
        outcome = acquired => outcome,
        never = show(search), if !is_silent => match never {},
    }
}

async fn show(search: &mut HolderSearch<'_>) -> Infallible {
    sleep(FIRST_LOOK_AFTER).await;
    if status_line::is_available() {
        update_line(search).await
    } else {
        print_plain_line(search).await
    }
}

async fn update_line(search: &mut HolderSearch<'_>) -> Infallible {
    let _clear = status_line::ClearOnDrop;
    loop {
        status_line::draw(&search.sentence());
        tokio::select! {
            biased;
            () = search.look() => {
                status_line::draw(&search.sentence());
                sleep(LOOK_INTERVAL).await;
            }
            // The store answers late: the times of the last look are counted on.
            () = sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Looks twice, at the beginning and at the end, so that the line can tell how long the holder has held the key.
async fn print_plain_line(search: &mut HolderSearch<'_>) -> Infallible {
    let line_at = Instant::now() + (PLAIN_LINE_AFTER - FIRST_LOOK_AFTER);
    // A look that takes longer is awaited by the next call.
    let _ = timeout_at(line_at, search.look()).await;
    sleep_until(line_at).await;
    // Without an answer, the line tells what is known.
    let _ = timeout(LOOK_INTERVAL, search.look()).await;
    note_as_is(false, &search.sentence());
    pending().await
}
