//! `promtool`, and whether the programs of Prometheus are there. A missing one fails its test, unless `TENURE_SKIP`
//! names it. Not here: what they are asked.

use std::path::Path;
use std::process::Command;

/// Whether to go on with a program: it is installed, or `TENURE_SKIP` says to do without it.
pub(crate) fn needs(program: &str) -> bool {
    let skip = std::env::var("TENURE_SKIP").unwrap_or_default();
    if skip.split(',').any(|name| name.trim() == program) {
        eprintln!("not tried with `{program}`: TENURE_SKIP names it");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        found,
        "`{program}` is not installed: `cargo xtask setup` or `apt-get install prometheus` brings it, \
         TENURE_SKIP={program} does without"
    );
    true
}

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
