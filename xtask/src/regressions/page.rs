//! The page, docs/REGRESSIONS.md: written by `cargo xtask regressions`, and checked by a test here.
//! Not here: the bugs and the search for their tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::bugs::BUGS;
use super::scan::{Guard, guards};
use crate::process::{Failure, root};

const PAGE: &str = "docs/REGRESSIONS.md";

const HEAD: &str = "\
# Bugs that lock libraries have shipped

Each of these has happened to somebody. The tests named here guard against it; those of the conformance suite, in
`tenure-testkit`, do so for every store, and once more in bad weather. A test says in its comment which bug it guards
against; `cargo xtask regressions` makes this page of the comments.

| | what went wrong | whose | guarded by |
|---|---|---|---|
";

/// Writes the page.
pub(crate) fn write() -> Result<(), Failure> {
    let page = render(&guards(&root())?)?;
    let path = root().join(PAGE);
    let cannot = |error| Failure::new(format!("{} cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    fs::write(&path, page).map_err(cannot)?;
    println!("regressions: {PAGE} written: {} bugs", BUGS.len());
    Ok(())
}

/// The page; fails if a bug that can happen has no test, or a test names a bug that there is not.
fn render(guards: &[Guard]) -> Result<String, Failure> {
    if let Some(unknown) = guards.iter().find(|guard| !(1..=BUGS.len()).contains(&guard.bug)) {
        let Guard { bug, file, test } = unknown;
        return Err(Failure::new(format!(
            "{}: {test} names R{bug}, which there is not",
            file.display()
        )));
    }
    let mut page = HEAD.to_owned();
    for (number, bug) in (1..).zip(BUGS) {
        let mut cells = Vec::new();
        let mut files: BTreeMap<&PathBuf, Vec<&str>> = BTreeMap::new();
        for guard in guards.iter().filter(|guard| guard.bug == number) {
            files.entry(&guard.file).or_default().push(&guard.test);
        }
        if bug.applies && files.is_empty() {
            return Err(Failure::new(format!(
                "no test guards against R{number}: {}",
                bug.what
            )));
        }
        cells.extend(files.iter().map(|(file, tests)| cell(file, tests)));
        if !bug.awaits.is_empty() {
            cells.push(format!("waits for {}", bug.awaits.join(", ")));
        }
        page += &format!(
            "| R{number} | {} | {} | {} |\n",
            bug.what,
            bug.whose,
            cells.join("<br>")
        );
    }
    Ok(page)
}

/// A file with a link, and its tests.
fn cell(file: &Path, tests: &[&str]) -> String {
    let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
    let shown = file.strip_prefix("crates").unwrap_or(file).display();
    format!("[{shown}](../{}): {}", file.display(), tests.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_that_can_happen_has_a_test_and_the_page_says_which() {
        let page = render(&guards(&root()).unwrap()).unwrap();
        let there = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
        assert!(there == page, "{PAGE} is stale: run `cargo xtask regressions`");
    }

    #[test]
    fn a_bug_without_a_test_and_a_test_without_a_bug_are_found() {
        let all = |bugs: std::ops::RangeInclusive<usize>| {
            let guard = |bug| Guard {
                bug,
                file: "crates/a/tests/b.rs".into(),
                test: "a_test".into(),
            };
            bugs.map(guard).collect::<Vec<_>>()
        };
        assert!(render(&all(1..=BUGS.len())).is_ok());
        assert!(render(&all(2..=BUGS.len())).is_err());
        assert!(render(&all(1..=BUGS.len() + 1)).is_err());
    }
}
