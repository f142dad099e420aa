//! `promtool`, and what it says of rules. Not here: which rules it is asked about.

use std::path::Path;
use std::process::Command;

/// Whether `promtool VERB rules FILE` is content, and what it says.
pub(crate) fn rules(verb: &str, file: &Path) -> (bool, String) {
    let output = Command::new("promtool").args([verb, "rules"]).arg(file).output();
    let output = output.expect("promtool starts");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}
