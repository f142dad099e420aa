//! Text of others, as it may be shown to people: labels, who evicted, what a file says of itself.

use std::borrow::Cow;

/// The text, with escapes in place of what a terminal would obey: nothing in it moves a cursor, ends a line or turns text
/// around.
///
/// # Examples
/// ```
/// assert_eq!(tenure_backend::escape_control("job-7\u{1b}[2J"), "job-7\\u{1b}[2J");
/// ```
pub fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let add = |mut shown: String, c: char| {
        match is_obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
        shown
    };
    Cow::Owned(text.chars().fold(String::new(), add))
}

/// Control characters, line ends, and those that change the direction of what follows.
fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_all_else_is_as_written() {
        assert_eq!(
            escape_control("/var/lib/é 'x' \\ 鎖.db"),
            "/var/lib/é 'x' \\ 鎖.db"
        );
        assert_eq!(
            escape_control("a\nb\u{1b}[2J\u{7f}\u{202e}"),
            "a\\nb\\u{1b}[2J\\u{7f}\\u{202e}"
        );
    }
}
