//! Applies every rule to the whole workspace and prints what it finds.
//! Not here: the rules.

use super::finding::Finding;
use super::source::{Source, read_all};
use super::{arrows, declarations, doors, header, manifest, msrv, names, promises, reasons, width, words};
use crate::metadata::Metadata;
use crate::process::{Failure, root};

/// The rules for one file.
const RULES: [fn(&Source) -> Vec<Finding>; 7] = [
    header::check,
    declarations::check,
    names::check,
    width::check,
    words::check,
    doors::check,
    promises::check,
];

/// Fails when any rule is broken.
pub(crate) fn run() -> Result<(), Failure> {
    let root = root();
    let metadata = Metadata::read()?;
    let sources = read_all(&root)?;

    let mut found = arrows::check(&metadata);
    found.extend(manifest::check(&metadata)?);
    found.extend(msrv::check(&metadata));
    found.extend(reasons::check(&root, &metadata)?);
    found.extend(
        sources
            .iter()
            .flat_map(|source| RULES.iter().flat_map(move |rule| rule(source))),
    );
    for finding in &mut found {
        if let Ok(below) = finding.file.strip_prefix(&root) {
            finding.file = below.to_owned();
        }
    }
    found.sort();
    for finding in &found {
        println!("{finding}");
    }
    match found.len() {
        0 => {
            println!(
                "tidy: {} files, {} packages: nothing found",
                sources.len(),
                metadata.packages.len()
            );
            Ok(())
        }
        count => Err(Failure::new(format!("{count} rules broken"))),
    }
}
