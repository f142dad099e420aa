//! Checks that the published crates can be packaged, and that CONTRIBUTING.md lists each after its dependencies.

use crate::metadata::{Metadata, Package};
use crate::process::{Failure, cargo, output, root, run as run_command};

/// Files that every package contains.
const NEEDED: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The words before and after the list of crates in CONTRIBUTING.md.
const LIST: [&str; 2] = ["published in the order of their dependencies:", "."];

/// Checks the order in CONTRIBUTING.md and the files of each published crate. Then packages the crates, without a
/// registry and without building them.
pub(crate) fn run() -> Result<(), Failure> {
    let metadata = Metadata::read()?;
    let packages: Vec<&Package> = metadata
        .members()
        .filter(|package| package.is_published())
        .collect();
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md"))?;
    if let Some(wrong) = wrong_order(&listed(&page), &packages) {
        return Err(format!("the order in CONTRIBUTING.md is wrong: {wrong}").into());
    }
    let mut together = "package --no-verify --offline --allow-dirty --quiet".to_owned();
    for package in &packages {
        let name = &package.name;
        together += &format!(" --package {name}");
        let list = format!("package --list --offline --allow-dirty --quiet --package {name}");
        let files = output(cargo(&list))?;
        if let Some(missing) = missing(&files) {
            return Err(format!("`cargo {list}` does not list {missing}").into());
        }
    }
    // In one call, because otherwise cargo does not find a dependency that is not published yet.
    run_command(cargo(&together))?;
    println!("packages: {} crates can be packaged", packages.len());
    Ok(())
}

/// The first file of `NEEDED` that is not in `files`, the list of a package's files.
fn missing(files: &str) -> Option<&'static str> {
    NEEDED
        .into_iter()
        .find(|needed| !files.lines().any(|file| file == *needed))
}

/// The crates in the page's list of published crates, in its order.
fn listed(page: &str) -> Vec<&str> {
    let list = page
        .split_once(LIST[0])
        .and_then(|(_, rest)| rest.split_once(LIST[1]));
    list.map_or_else(Vec::new, |(list, _)| list.split('`').skip(1).step_by(2).collect())
}

/// What is wrong with the order. Dependencies of tests do not count: a published crate lacks them.
fn wrong_order(order: &[&str], packages: &[&Package]) -> Option<String> {
    let place = |name: &str| order.iter().position(|listed| *listed == name);
    for package in packages {
        let name = &package.name;
        let Some(own) = place(name) else {
            return Some(format!("`{name}` is missing"));
        };
        for dependency in package
            .dependencies
            .iter()
            .filter(|to| to.kind.as_deref() != Some("dev"))
        {
            let to = &dependency.name;
            let is_ours = dependency.path.is_some();
            if is_ours && place(to).is_none_or(|place| place >= own) {
                return Some(format!("`{name}` needs `{to}` before it"));
            }
        }
    }
    (order.len() != packages.len()).then(|| "it names a crate that is not published, or one twice".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_published_after_its_dependencies() {
        let metadata = serde_json::json!({"workspace_members": ["a", "b", "c"], "packages": [
            {"id": "a", "name": "a", "version": "1.0.0", "dependencies": [
                {"name": "b", "kind": null, "req": "^1", "path": "/b"},
                {"name": "tokio", "kind": null, "req": "^1", "path": null}]},
            {"id": "b", "name": "b", "version": "1.0.0", "dependencies": [
                {"name": "a", "kind": "dev", "req": "*", "path": "/a"}]},
            {"id": "c", "name": "c", "version": "1.0.0", "publish": [], "dependencies": []},
        ]});
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let packages: Vec<&Package> = metadata
            .members()
            .filter(|package| package.is_published())
            .collect();
        let wrong = |page: &str| wrong_order(&listed(page), &packages);
        let begin = LIST[0];
        assert_eq!(wrong(&format!("{begin} `b`,\n`a`. `c` is not.")), None);
        for (list, words) in [
            (format!("{begin} `a`, `b`."), "`a` needs `b` before it"),
            (format!("{begin} `b`."), "`a` is missing"),
            (format!("{begin} `b`, `a`, `c`."), "is not published"),
            (String::new(), "is missing"),
        ] {
            let found = wrong(&list).unwrap();
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn a_package_without_licence_is_found() {
        assert_eq!(
            missing("LICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n"),
            None
        );
        assert_eq!(
            missing("LICENSE-APACHE\nREADME.md\ndocs/LICENSE-MIT\n"),
            Some("LICENSE-MIT")
        );
    }
}
