//! Escapes foreign text, such as labels and names of evictors, before it is shown to people.

use std::borrow::Cow;

/// Escapes the characters of a text that a terminal would act on.
///
/// In the result no character moves the cursor, ends a line or changes the direction of text.
///
/// # Examples
/// ```
/// assert_eq!(tenure_backend::escape_control("job-7\u{1b}[2J"), "job-7\\u{1b}[2J");
/// ```
pub fn escape_control(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let add = |mut escaped: String, c: char| {
        match needs_escape(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
        escaped
    };
    Cow::Owned(text.chars().fold(String::new(), add))
}

fn needs_escape(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || ends_line || changes_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_kept() {
        assert_eq!(
            escape_control("/var/lib/é 'x' \\ 鎖.db"),
            "/var/lib/é 'x' \\ 鎖.db"
        );
        assert_eq!(
            escape_control("a\nb\u{1b}[2J\u{7f}\u{202e}\u{61c}"),
            "a\\nb\\u{1b}[2J\\u{7f}\\u{202e}\\u{61c}"
        );
    }
}
