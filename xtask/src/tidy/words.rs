//! Words that never stay in the code: unfinished work, tests that do not run, tests that guess how long to wait.
//! Not here: what clippy finds.

use super::finding::Finding;
use super::source::Source;

const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Stands in a comment above or beside a sleep that is not a guess, with its reason: the pace of a loop that polls
/// until a deadline, or time that is itself the event.
const REASON: &str = "// sleep:";

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let texts: Vec<&str> = source.text.lines().collect();
    let in_tests = source.names().any(|name| name == "tests");
    let mut found = Vec::new();
    for (line, code) in source.code_lines() {
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(code, word)) {
            found.push(source.finding(
                line,
                format!("`{word}` is left in the code"),
                "finish it or remove it",
            ));
        }
        let attribute = code.trim_start();
        if attribute.starts_with("#[ignore")
            || (attribute.starts_with("#[cfg_attr") && has_word(attribute, "ignore"))
        {
            let instead = "let it run; what it needs belongs to xtask/src/needs.rs";
            found.push(source.finding(line, "a test is ignored", instead));
        }
        let text = texts.get(line - 1).copied().unwrap_or_default();
        if text.trim_start().starts_with("//") && text.contains("```ignore") {
            found.push(source.finding(line, "an example is ignored", "make it run, or mark it `no_run`"));
        }
        let excused = [line.checked_sub(2), Some(line - 1)]
            .into_iter()
            .flatten()
            .any(|at| texts[at].contains(REASON));
        if in_tests && has_word(code, "sleep(") && !excused {
            let instead = format!(
                "wait for the event with a deadline; where time itself is meant, say why: `{REASON} …`"
            );
            found.push(source.finding(line, "a test sleeps", instead));
        }
    }
    found
}

/// Whether `word` stands in `code`, not as the end of a longer one.
fn has_word(code: &str, word: &str) -> bool {
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    code.match_indices(word).any(|(at, _)| begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::testing::{NOWHERE, lines};

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        lines(check(&Source::new(path, text)))
    }

    #[test]
    fn unfinished_work_is_found_in_code_alone() {
        for line in [
            "todo!()",
            "x(dbg!(y))",
            "std::unimplemented!(\"later\")",
            "todo! { }",
        ] {
            assert_eq!(lines_of("src/a.rs", line), [1], "{line}");
        }
        for line in ["// todo!()", "\"dbg!\"", "my_todo!()", "let todo = 1;"] {
            assert_eq!(lines_of("src/a.rs", line), NOWHERE, "{line}");
        }
    }

    #[test]
    fn a_test_or_example_that_does_not_run_is_found() {
        for line in [
            "#[ignore]",
            "    #[ignore = \"slow\"]",
            "#[cfg_attr(miri, ignore)]",
            "/// ```ignore",
        ] {
            assert_eq!(lines_of("src/a.rs", line), [1], "{line}");
        }
        for line in ["// #[ignore]", "/// ```no_run", "fn ignore() {}", "\"```ignore\""] {
            assert_eq!(lines_of("src/a.rs", line), NOWHERE, "{line}");
        }
    }

    #[test]
    fn a_sleep_in_a_test_gives_its_reason_or_is_found() {
        let sleep = "    std::thread::sleep(PACE);";
        assert_eq!(lines_of("crates/a/tests/b.rs", sleep), [1]);
        assert_eq!(
            lines_of("crates/a/src/engine/tests.rs", &format!("\n\n{sleep}")),
            [3]
        );
        assert_eq!(
            lines_of(
                "crates/a/tests/b.rs",
                &format!("// sleep: polls for the file\n{sleep}")
            ),
            NOWHERE
        );
        assert_eq!(
            lines_of(
                "crates/a/tests/b.rs",
                &format!("{sleep} // sleep: polls for the file")
            ),
            NOWHERE
        );
        assert_eq!(lines_of("crates/a/src/b.rs", sleep), NOWHERE);
        assert_eq!(lines_of("crates/a/tests/b.rs", "nosleep(1); // sleep("), NOWHERE);
    }
}
