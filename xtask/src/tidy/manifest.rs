//! Every crate says what it is, and takes licence and compiler from the workspace.
//! Not here: what it depends on (`arrows`, `msrv`).

use super::finding::Finding;
use crate::metadata::{Metadata, Package};
use crate::process::Failure;

const INHERITED: [&str; 3] = ["license", "rust-version", "edition"];

pub(crate) fn check(metadata: &Metadata) -> Result<Vec<Finding>, Failure> {
    let mut found = Vec::new();
    for package in metadata.members() {
        let path = &package.manifest_path;
        let manifest = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("{} cannot be read: {error}", path.display())))?;
        found.extend(check_crate(package, &manifest));
    }
    Ok(found)
}

fn check_crate(package: &Package, manifest: &str) -> Vec<Finding> {
    let finding = |what: String, instead: String| Finding {
        file: package.manifest_path.clone(),
        line: 0,
        what,
        instead,
    };
    let mut found = Vec::new();
    if package
        .description
        .as_deref()
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        let what = format!("the crate `{}` has no description", package.name);
        found.push(finding(
            what,
            "say in one line what it is for: description = \"…\"".to_owned(),
        ));
    }
    for field in INHERITED {
        let inherited = format!("{field}.workspace = true");
        if !manifest.lines().any(|line| line.trim() == inherited) {
            let what = format!(
                "the crate `{}` does not take `{field}` from the workspace",
                package.name
            );
            found.push(finding(what, format!("write {inherited}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(description: &str, manifest: &str) -> usize {
        let json = format!(
            r#"{{"workspace_members": ["id"], "packages": [{{"id": "id", "name": "a", "version": "1.0.0",
                "manifest_path": "a/Cargo.toml", "dependencies": [], "description": {description}}}]}}"#
        );
        let metadata = Metadata::parse(&json).unwrap();
        metadata
            .members()
            .flat_map(|package| check_crate(package, manifest))
            .count()
    }

    #[test]
    fn what_a_crate_must_say_is_missed_when_it_is_not_there() {
        let whole = "license.workspace = true\nrust-version.workspace = true\nedition.workspace = true\n";
        assert_eq!(findings("\"Locks.\"", whole), 0);
        assert_eq!(findings("null", whole), 1);
        assert_eq!(findings("\" \"", whole), 1);
        for (field, own) in [
            ("license", "\"MIT\""),
            ("rust-version", "\"1.80\""),
            ("edition", "\"2021\""),
        ] {
            let broken = whole.replace(&format!("{field}.workspace = true"), &format!("{field} = {own}"));
            assert_eq!(findings("\"Locks.\"", &broken), 1, "{field}");
        }
    }
}
