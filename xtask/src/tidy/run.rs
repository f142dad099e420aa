//! Applies every rule to the whole workspace and prints what it finds.

use std::fs;

use super::{arrows, cycles, packages, text};
use crate::files::below;
use crate::metadata::Metadata;
use crate::process::{Failure, root};
use crate::regressions;

/// The folders with Rust files.
const FOLDERS: [&str; 4] = ["crates", "examples", "interop", "xtask"];

/// Fails if any rule is broken.
pub(crate) fn run() -> Result<(), Failure> {
    let root = root();
    let read = |path: &str| {
        fs::read_to_string(root.join(path))
            .map_err(|error| Failure::new(format!("{path} cannot be read: {error}")))
    };
    let mut files = Vec::new();
    for folder in FOLDERS {
        for file in below(&root.join(folder))? {
            let path = format!("{folder}/{}", file.display());
            if path.ends_with(".rs") && !path.contains("/target/") {
                let text = read(&path)?;
                files.push((path, text));
            }
        }
    }
    let metadata = Metadata::read()?;
    let mut found = arrows::check(&metadata);
    found.extend(packages::check(&metadata, &read("ARCHITECTURE.md")?));
    found.extend(files.iter().flat_map(|(path, text)| text::check(path, text)));
    found.extend(cycles::check(&files));
    found.extend(regressions::check(&read(regressions::PAGE)?, &files));
    for finding in &found {
        println!("{finding}");
    }
    if found.is_empty() {
        println!("tidy: {} files: nothing found", files.len());
        return Ok(());
    }
    Err(Failure::new(format!("{} findings", found.len())))
}
