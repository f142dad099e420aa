//! `cargo xtask tidy`: checks rules that no compiler, lint or `cargo deny` checks.

mod arrows;
mod cycles;
mod links;
mod packages;
mod text;
mod words;

use std::fs;

use crate::files::below;
use crate::metadata::Metadata;
use crate::process::{Failure, root};
use crate::regressions;

/// The folders and pages of the workspace that are checked.
const CHECKED: [&str; 14] = [
    "crates",
    "docs",
    "examples",
    "interop",
    "mutants",
    "xtask",
    "README.md",
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "GUARANTEES.md",
    "ROADMAP.md",
    "SECURITY.md",
];

/// Applies every rule to the whole workspace, prints the findings, and fails if there are any.
pub(crate) fn run() -> Result<(), Failure> {
    let root = root();
    let mut files = Vec::new();
    let mut found = Vec::new();
    for place in CHECKED {
        let inside = match root.join(place) {
            page if page.is_file() => vec![place.to_owned()],
            folder => {
                let files = below(&folder)?;
                files
                    .iter()
                    .map(|file| format!("{place}/{}", file.display()))
                    .collect()
            }
        };
        for path in inside {
            // Skips files that are not text.
            let Ok(text) = fs::read_to_string(root.join(&path)) else {
                continue;
            };
            found.extend(words::check(&path, &text));
            if path.ends_with(".md") {
                let folder = root.join(&path).with_file_name("");
                found.extend(links::check(&path, &text, |file| folder.join(file).exists()));
            }
            if path.ends_with(".rs") {
                files.push((path, text));
            }
        }
    }
    let metadata = Metadata::read()?;
    found.extend(arrows::check(&metadata));
    found.extend(packages::check(&metadata));
    found.extend(files.iter().flat_map(|(path, text)| text::check(path, text)));
    found.extend(cycles::check(&files));
    let regressions = fs::read_to_string(root.join(regressions::PAGE))?;
    found.extend(regressions::check(&regressions, &files));
    for finding in &found {
        println!("{finding}");
    }
    if found.is_empty() {
        println!("tidy: {} files: nothing found", files.len());
        return Ok(());
    }
    Err(format!("{} findings", found.len()).into())
}
