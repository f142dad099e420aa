//! Checks docs/REGRESSIONS.md: every bug has tests that exist, and the comment above each test names the bug.

pub(crate) const PAGE: &str = "docs/REGRESSIONS.md";

/// The bugs are R1 to R32.
const BUGS: usize = 32;

/// Finds bugs without a row, rows without a test (unless they say `waits for …`), and tests that are missing or do not
/// name their bug.
pub(crate) fn check(page: &str, files: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for bug in (1..=BUGS).map(|number| format!("R{number}")) {
        let start = format!("| {bug} |");
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap_or("");
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or("");
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() && !cell.starts_with("waits for ") {
            found.push(format!("{PAGE}: {bug} has no row, or it names no test"));
        }
        for test in tests {
            if !files.iter().any(|(_, text)| names_bug(text, test, &bug)) {
                found.push(format!(
                    "{PAGE}: there is no test `{test}` whose comment names {bug}"
                ));
            }
        }
    }
    found
}

fn names_bug(text: &str, test: &str, bug: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {test}(")) else {
        return false;
    };
    let (above, _) = before.rsplit_once('\n').unwrap_or_default();
    let lines = above.lines().rev().map(str::trim_start);
    let mut comment = lines.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    comment.any(|line| line.split(|c: char| !c.is_alphanumeric()).any(|word| word == bug))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_belongs_to_the_test_below_it() {
        let text = "    /// R1, R22: it goes wrong.\n    #[tokio::test]\n    async fn first() {\n    // R3\n}\nfn second() {}\n";
        let bugs = |test| ["R1", "R2", "R22", "R3"].map(|bug| names_bug(text, test, bug));
        assert_eq!(bugs("first"), [true, false, true, false]);
        assert_eq!(bugs("second"), [false; 4]);
    }

    #[test]
    fn every_bug_has_a_row_and_a_test_that_names_it() {
        let row = |number: usize| format!("| R{number} | `x` | y | `a{number}`; waits for z |\n");
        let test = |number: usize| format!("// R{number}\nfn a{number}();\n");
        let (page, tests) = ((1..=BUGS).map(row).collect(), (1..=BUGS).map(test).collect());
        let count = |page: &String, tests: &String| check(page, &[(String::new(), tests.clone())]).len();
        assert_eq!(count(&page, &tests), 0);
        assert_eq!(count(&page, &tests.replace("// R7\n", "")), 1);
        assert_eq!(count(&page.replace("| R9 |", "| R99 |"), &tests), 1);
        assert_eq!(count(&page.replace("`a8`; waits", "waits"), &tests), 0);
        assert_eq!(count(&page.replace("`a8`; waits for z", "none"), &tests), 1);
    }
}
