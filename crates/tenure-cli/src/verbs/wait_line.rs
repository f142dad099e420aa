//! Prints the holder while a verb waits for a lock: on a terminal a line that is updated each second, elsewhere one
//! plain line after 10 s.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::holder::{HolderSearch, LOOK_INTERVAL};
use crate::args::Global;
use crate::messages::note_as_is;
use crate::status_line;

/// Time until the first query for the holder. During a shorter wait for a lock, no line is shown.
const FIRST_LOOK_AFTER: Duration = Duration::from_secs(1);
/// Time until the plain line is printed, if stderr is not a terminal.
const PLAIN_LINE_AFTER: Duration = Duration::from_secs(10);

/// Waits for `acquired`, and shows the holder of the lock meanwhile. Shows nothing with `-q` or `--json`.
///
/// `acquired` is always polled first, so a query for the holder delays no lock.
///
/// # Cancel safety
/// The same as that of `acquired`. The line is erased when this future ends or is dropped.
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
            // The store is slow: draw the line again, with times computed from the previous query.
            () = sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// Prints one line after 10 s. Queries the store twice, after 1 s and after 10 s, so that the line can tell how long
/// the holder has held the key.
async fn print_plain_line(search: &mut HolderSearch<'_>) -> Infallible {
    let line_at = Instant::now() + (PLAIN_LINE_AFTER - FIRST_LOOK_AFTER);
    // `search` keeps a query that takes longer, and the next call of `look` waits for its reply.
    let _ = timeout_at(line_at, search.look()).await;
    sleep_until(line_at).await;
    // On a timeout, the line tells what the previous query found.
    let _ = timeout(LOOK_INTERVAL, search.look()).await;
    note_as_is(false, &search.sentence());
    pending().await
}
