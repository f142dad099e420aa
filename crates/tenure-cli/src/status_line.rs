//! A line on stderr that is updated in place while a verb waits. All other output to stderr must call [`clear`]
//! first, or it would be appended to the line.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Assumed width of a terminal that does not report one.
const DEFAULT_COLUMNS: usize = 80;
/// Moves the cursor to the first column and erases the line.
const ERASE: &str = "\r\u{1b}[K";

/// True while a line is shown. One flag for the process, because the process has one stderr.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Returns whether stderr is a terminal on which a line can be updated in place.
pub fn is_available() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Replaces the line by `text`, cut to the terminal's width.
///
/// Prints nothing while another job has the terminal, because the line would disturb that job. Prints nothing while the
/// terminal takes no output (Ctrl-S) either, because the write would block the caller.
pub fn draw(text: &str) {
    if takes_output() {
        // An error means that the terminal is gone.
        let _ = write_line(&mut io::stderr(), text, columns());
        SHOWN.store(true, Ordering::Relaxed);
    }
}

/// Erases the line, if one is shown. Leaves it if the terminal takes no output from this job.
pub fn clear() {
    if SHOWN.swap(false, Ordering::Relaxed) && takes_output() {
        let _ = io::stderr().write_all(ERASE.as_bytes());
    }
}

/// Erases the status line when this value is dropped.
#[derive(Debug)]
pub struct ClearOnDrop;

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        clear();
    }
}

/// Writes the line in one call. The last column stays empty, because a full line could wrap.
fn write_line(out: &mut impl Write, text: &str, columns: usize) -> io::Result<()> {
    out.write_all(format!("{ERASE}{}", cut(text, columns.saturating_sub(1))).as_bytes())
}

/// Cuts a text to a number of columns, and marks the cut with three dots, or with fewer if there is no room.
fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut shown, mut left) = (String::new(), columns.saturating_sub(3));
    for c in text.chars() {
        let Some(rest) = left.checked_sub(char_width(c)) else {
            break;
        };
        shown.push(c);
        left = rest;
    }
    shown + &"..."[..columns.min(3)]
}

fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Upper bound of the columns of a character: every character outside of ASCII counts as a wide one.
fn char_width(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

#[cfg(unix)]
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    match size.map(|size| usize::from(size.ws_col)) {
        Ok(0) | Err(_) => DEFAULT_COLUMNS,
        Ok(columns) => columns,
    }
}

#[cfg(not(unix))]
fn columns() -> usize {
    DEFAULT_COLUMNS
}

/// Returns whether a write to stderr is shown at once, and does not disturb another job.
#[cfg(unix)]
fn takes_output() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stderr = rustix::stdio::stderr();
    let foreground = rustix::termios::tcgetpgrp(stderr);
    if foreground.is_ok_and(|group| group != rustix::process::getpgrp()) {
        return false;
    }
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

#[cfg(not(unix))]
fn takes_output() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_before_the_last_column() {
        let written = |text: &str, columns| {
            let mut out = Vec::new();
            write_line(&mut out, text, columns).expect("a vector takes all");
            String::from_utf8(out).expect("we write text")
        };
        assert_eq!(written("waiting", 8), "\r\u{1b}[Kwaiting");
        assert_eq!(written("waiting", 7), "\r\u{1b}[Kwai...");
        assert_eq!(written("waiting", 3), "\r\u{1b}[K..");
        assert_eq!(written("waiting", 0), "\r\u{1b}[K");
    }

    #[test]
    fn a_wide_character_counts_two_columns() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日...");
    }
}
