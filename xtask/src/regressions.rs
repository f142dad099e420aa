//! Checks docs/REGRESSIONS.md: every bug has a test that exists, and the comment above that test names the bug.

use std::collections::BTreeSet;

pub(crate) const PAGE: &str = "docs/REGRESSIONS.md";

/// The bugs are R1 to R32.
const BUGS: usize = 32;

/// Finds bugs without a row, rows without a test, and tests that do not exist or do not name the bug of their row.
pub(crate) fn check(page: &str, files: &[(String, String)]) -> Vec<String> {
    let guards: BTreeSet<_> = files.iter().flat_map(|(_, text)| guards(text)).collect();
    let mut rows = page.lines().filter(|line| line.starts_with("| R"));
    let mut found = Vec::new();
    for number in 1..=BUGS {
        let row = rows.next().unwrap_or("").trim_end_matches(" |");
        if !row.starts_with(&format!("| R{number} |")) {
            found.push(format!("{PAGE}: the row of R{number} is missing or out of order"));
            break;
        }
        let cell = row.rsplit(" | ").next().unwrap_or("");
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() && !cell.starts_with("waits for ") {
            found.push(format!("{PAGE}: R{number} names no test"));
        }
        for test in tests.iter().filter(|test| !guards.contains(&(number, **test))) {
            found.push(format!(
                "{PAGE}: there is no test `{test}` whose comment names R{number}"
            ));
        }
    }
    found
}

/// The functions of a file with each bug that the comment above them names.
fn guards(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut named) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim_start) {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if line.starts_with("//") {
            named.extend(words.filter_map(|word| word.strip_prefix('R')?.parse::<usize>().ok()));
        } else if words.any(|word| word == "fn") {
            let name = words.next().unwrap_or("");
            found.extend(named.drain(..).map(|bug| (bug, name)));
        } else if !line.starts_with("#[") {
            named.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_belongs_to_the_test_below_it() {
        let text = "
/// R1, R22: it goes wrong.
#[tokio::test(start_paused = true)]
async fn first() {
    // R3 is about no function.
    go();
}
    /// It goes well (R4).
    pub async fn second(trial: Trial) {}

fn third() {}
";
        assert_eq!(guards(text), [(1, "first"), (22, "first"), (4, "second")]);
    }

    #[test]
    fn every_bug_has_a_row_and_a_test_that_names_it() {
        let row = |number: usize| format!("| R{number} | `x` | y | `a`, `b`; waits for z |\n");
        let page: String = (1..=BUGS).map(row).collect();
        let all: String = (1..=BUGS)
            .map(|number| format!("// R{number}\nfn a();\n// R{number}\nfn b();\n"))
            .collect();
        let found = |page: &str, text: &str| check(page, &[(String::new(), text.to_owned())]);
        assert_eq!(found(&page, &all), [""; 0]);
        assert_eq!(found(&page, &all.replace("// R7\nfn b", "fn b")).len(), 1);
        assert_eq!(found(&page.replace("| R9 |", "| R99 |"), &all).len(), 1);
        assert_eq!(
            found(&page.replace("`a`, `b`; waits for z", "waits for z"), "").len(),
            0
        );
        assert_eq!(
            found(&page.replacen("`a`, `b`; waits for z", "none", 1), &all).len(),
            1
        );
    }
}
