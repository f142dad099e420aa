//! A comment is wrapped: rustfmt leaves that to whoever writes it.
//! Not here: the width of code, which is rustfmt's.

use super::finding::Finding;
use super::source::Source;

/// So many columns a line of a comment may have, with what stands before it.
const MAX_COLUMNS: usize = 125;

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let long = (1..).zip(source.text.lines()).filter_map(|(line, text)| {
        let columns = text.chars().count();
        (columns > MAX_COLUMNS && can_be_wrapped(text)).then_some((line, columns))
    });
    let report = |(line, columns)| {
        source.finding(
            line,
            format!("the comment has {columns} columns, more than {MAX_COLUMNS}"),
            "wrap it",
        )
    };
    long.map(report).collect()
}

/// Whether the line is a comment alone, and not a row of a table, which must stay on one line.
fn can_be_wrapped(text: &str) -> bool {
    let comment = text.trim_start().strip_prefix("//");
    comment.is_some_and(|rest| !rest.trim_start_matches(['/', '!', ' ']).starts_with('|'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::testing::{NOWHERE, lines};

    fn lines_of(text: &str) -> Vec<usize> {
        lines(check(&Source::new("a.rs", text)))
    }

    #[test]
    fn a_comment_that_was_not_wrapped_is_found() {
        for start in ["//! ", "/// ", "// ", "    /// ", "//"] {
            let fits = format!("{start}{}", "é".repeat(MAX_COLUMNS - start.len()));
            assert_eq!(lines_of(&fits), NOWHERE, "{fits}");
            assert_eq!(lines_of(&format!("x;\n{fits}é\n")), [2], "{fits}");
        }
    }

    #[test]
    fn code_and_rows_of_tables_are_left_alone() {
        let long = "x".repeat(MAX_COLUMNS);
        for line in [format!("{long} // why"), format!("    /// | {long} |")] {
            assert_eq!(lines_of(&line), NOWHERE, "{line}");
        }
    }
}
