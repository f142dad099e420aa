//! Every file says what lives in it, and is short or says why not.
//! Not here: what else stands in it.

use super::finding::Finding;
use super::source::Source;

/// What a file begins with; a long header of a crate may stand in a file of its own.
const HEADERS: [&str; 2] = ["//! ", "#![doc = include_str!("];

/// More lines than this need a reason.
const MAX_LINES: usize = 600;

/// How the reason is given, in the file's own header.
const REASON: &str = "//! Length:";

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    if !HEADERS.iter().any(|header| source.text.starts_with(header)) {
        let what = "the file does not begin with `//!`";
        found.push(source.finding(
            1,
            what,
            "say in one line what lives here, and in one what does not",
        ));
    }
    let lines = source.text.lines().count();
    let excused = source.text.lines().any(|line| {
        line.strip_prefix(REASON)
            .is_some_and(|why| !why.trim().is_empty())
    });
    if lines > MAX_LINES && !excused {
        let what = format!("the file has {lines} lines, more than {MAX_LINES}");
        found.push(source.finding(
            0,
            what,
            format!("split it by idea, or give the reason in a line `{REASON} …`"),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::testing::{NOWHERE, lines};

    fn lines_of(text: &str) -> Vec<usize> {
        lines(check(&Source::new("a.rs", text)))
    }

    #[test]
    fn a_file_begins_with_what_lives_in_it() {
        for text in [
            "//! What lives here.\n",
            "#![doc = include_str!(\"../docs.md\")]\n",
        ] {
            assert_eq!(lines_of(text), NOWHERE, "{text:?}");
        }
        for text in ["", "use std::fmt;\n", "// A comment.\n", "\n//! Late.\n", "//!\n"] {
            assert_eq!(lines_of(text), [1], "{text:?}");
        }
    }

    #[test]
    fn a_long_file_gives_its_reason() {
        let body = |lines: usize| "//! What lives here.\n".to_owned() + &"x;\n".repeat(lines - 1);
        assert_eq!(lines_of(&body(600)), NOWHERE);
        assert_eq!(lines_of(&body(601)), [0]);
        assert_eq!(lines_of(&(body(601) + "//! Length:  \n")), [0]);
        assert_eq!(lines_of(&(body(601) + "//! Length: one table.\n")), NOWHERE);
    }
}
