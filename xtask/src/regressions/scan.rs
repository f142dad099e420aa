//! Which tests name which bugs: a comment above a test that has `R1` in it says that the test guards against it.
//! Not here: what the bugs are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::below;
use crate::process::Failure;

/// A test that guards against a bug.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guard {
    /// The bug's number.
    pub(crate) bug: usize,
    /// From the root of the workspace.
    pub(crate) file: PathBuf,
    pub(crate) test: String,
}

/// Every guard in the tests below `crates`, in order.
pub(crate) fn guards(root: &Path) -> Result<Vec<Guard>, Failure> {
    let folder = Path::new("crates");
    let mut found = Vec::new();
    for file in below(&root.join(folder))? {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let file = folder.join(file);
        let text = fs::read_to_string(root.join(&file))
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", file.display())))?;
        let named = in_text(&text).into_iter();
        found.extend(named.map(|(bug, test)| Guard {
            bug,
            file: file.clone(),
            test,
        }));
    }
    found.sort();
    Ok(found)
}

/// The bugs that the comments of functions name, and the functions.
fn in_text(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut named = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(comment) = line.strip_prefix("//") {
            named.extend(numbers(comment));
        } else if let Some(function) = function(line) {
            found.extend(named.drain(..).map(|bug| (bug, function.to_owned())));
        } else if !line.starts_with("#[") {
            named.clear();
        }
    }
    found
}

/// The numbers in `R1, R2: …`.
fn numbers(comment: &str) -> impl Iterator<Item = usize> {
    comment
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(|word| word.strip_prefix('R')?.parse().ok())
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_counts_for_the_test_below_it_and_no_other() {
        let text = "
/// R1, R22: it goes wrong.
#[tokio::test(start_paused = true)]
async fn a_test() {
    // R3 is not about a function.
    go();
}

/// It goes well (R4).
pub async fn a_case(trial: Trial) {}

    // R5
    fn an_inner_one() {}

fn none() {}
";
        let found = [(1, "a_test"), (22, "a_test"), (4, "a_case"), (5, "an_inner_one")];
        assert_eq!(in_text(text), found.map(|(bug, test)| (bug, test.to_owned())));
    }
}
