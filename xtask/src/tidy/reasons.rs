//! Every crate that we take from a registry has its reason in ARCHITECTURE.md, and every reason its crate.
//! Not here: whether the reason is good.

use std::path::Path;

use super::finding::Finding;
use crate::metadata::{Metadata, Package};
use crate::process::Failure;

const MAP: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Dependencies";

pub(crate) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Finding>, Failure> {
    let text = std::fs::read_to_string(root.join(MAP))
        .map_err(|error| Failure::new(format!("{MAP} cannot be read: {error}")))?;
    Ok(compare(&text, metadata))
}

fn compare(text: &str, metadata: &Metadata) -> Vec<Finding> {
    let reasons = reasons(text);
    let taken: Vec<(&Package, &str)> = metadata
        .members()
        .flat_map(|package| registry_names(package).map(move |name| (package, name)))
        .collect();
    let unexplained = taken
        .iter()
        .filter(|(_, name)| !reasons.iter().any(|(_, known)| known == name));
    let unused = reasons
        .iter()
        .filter(|(_, known)| !taken.iter().any(|(_, name)| name == known));
    let mut found: Vec<Finding> = unexplained
        .map(|(package, name)| Finding {
            file: package.manifest_path.clone(),
            line: 0,
            what: format!("`{}` takes `{name}`, and nothing says why", package.name),
            instead: format!("say in {MAP}, under Dependencies, why it and not the next best; or do without"),
        })
        .collect();
    found.extend(unused.map(|(line, name)| Finding {
        file: MAP.into(),
        line: *line,
        what: format!("no crate takes `{name}`"),
        instead: "remove it from the table".to_owned(),
    }));
    found
}

fn registry_names(package: &Package) -> impl Iterator<Item = &str> {
    let foreign = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.path.is_none());
    foreign.map(|dependency| dependency.name.as_str())
}

/// The crates that the table names in its first column, with their lines, where the last column says why.
fn reasons(text: &str) -> Vec<(usize, &str)> {
    let rows = (1..)
        .zip(text.lines())
        .skip_while(|(_, line)| *line != HEADING)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| line.starts_with("| "))
        // The titles.
        .skip(1);
    rows.flat_map(|(number, line)| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let names = cells.next().unwrap_or_default();
        let says_why = cells.next_back().is_some_and(|why| !why.is_empty());
        names
            .split(", ")
            .filter(move |_| says_why)
            .map(move |name| (number, name))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n\n| crate | what |\n|---|---|\n| `a` | b |\n\n## Dependencies\n\n\
                        | crate | for | why it |\n|---|---|---|\n| tokio | tasks | kept |\n| serde, serde_json | JSON | usual |\n\
                        | silent | nothing | |\n\n## More\n\n| left | of | it |\n|---|---|---|\n| elsewhere | x | y |\n";

    /// What is found in a workspace of one crate that takes these from a registry, and `ours` by path.
    fn findings(names: &[&str]) -> Vec<String> {
        let taken = names
            .iter()
            .map(|name| format!(r#"{{"name": "{name}", "kind": null, "req": "^1", "path": null}}"#));
        let ours = r#"{"name": "ours", "kind": null, "req": "^1", "path": "/w/ours"}"#.to_owned();
        let dependencies: Vec<String> = taken.chain([ours]).collect();
        let json = format!(
            r#"{{"workspace_members": ["id"], "packages": [{{"id": "id", "name": "a", "version": "1.0.0",
                "manifest_path": "a/Cargo.toml", "dependencies": [{}]}}]}}"#,
            dependencies.join(", ")
        );
        let found = compare(TEXT, &Metadata::parse(&json).unwrap());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_crate_whose_reason_is_told_is_fine_and_so_is_one_of_ours() {
        assert_eq!(findings(&["serde", "serde_json", "tokio"]), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_reason_is_found() {
        for name in ["left-pad", "silent", "elsewhere", "crate", "serde_js"] {
            let found = findings(&["serde", "serde_json", "tokio", name]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with(&format!("a/Cargo.toml: `a` takes `{name}`")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_reason_without_a_crate_is_found() {
        let found = findings(&["serde", "tokio"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("ARCHITECTURE.md:12: no crate takes `serde_json`"),
            "{found:?}"
        );
    }
}
