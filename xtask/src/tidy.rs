//! `cargo xtask tidy`: the rules that no compiler, lint or `cargo deny` checks.

mod arrows;
mod cycles;
mod packages;
mod text;

use std::fs;

use crate::files::below;
use crate::metadata::Metadata;
use crate::process::{Failure, root};
use crate::regressions;

/// The folders with Rust files.
const FOLDERS: [&str; 4] = ["crates", "examples", "interop", "xtask"];

/// Applies every rule to the whole workspace, prints what it finds, and fails if that is anything.
pub(crate) fn run() -> Result<(), Failure> {
    let root = root();
    let mut files = Vec::new();
    for folder in FOLDERS {
        for file in below(&root.join(folder))? {
            let path = format!("{folder}/{}", file.display());
            if path.ends_with(".rs") {
                let text = fs::read_to_string(root.join(&path))?;
                files.push((path, text));
            }
        }
    }
    let metadata = Metadata::read()?;
    let mut found = arrows::check(&metadata);
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
