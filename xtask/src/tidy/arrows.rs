//! Which crate of the workspace may use which.
//! Not here: which file may name a store (`doors`).

use super::finding::Finding;
use crate::metadata::{Dependency, Kind, Metadata, Package};

/// A crate, and the crates of the workspace that it may use.
struct Arrows(&'static str, &'static [&'static str]);

const CONTRACT: &str = "tenure-backend";
const STORE: &[&str] = &[CONTRACT, "tenure-endpoint"];

/// Every arrow points to the contract: stores know nothing of the engine, the engine names no store but in the one
/// file that connects, and the command and the workloads use the library and nothing below it.
const ARROWS: &[Arrows] = &[
    Arrows(CONTRACT, &[]),
    Arrows("tenure-endpoint", &[CONTRACT]),
    Arrows("tenure-memory", STORE),
    Arrows("tenure-redis", STORE),
    Arrows("tenure-quorum", STORE),
    Arrows("tenure-sql", STORE),
    Arrows("tenure-zookeeper", STORE),
    Arrows("tenure-etcd", STORE),
    Arrows(
        "tenure",
        &[
            CONTRACT,
            "tenure-endpoint",
            "tenure-memory",
            "tenure-redis",
            "tenure-quorum",
            "tenure-sql",
            "tenure-zookeeper",
            "tenure-etcd",
        ],
    ),
    Arrows("tenure-testkit", &[CONTRACT]),
    Arrows("tenure-servers", &[]),
    Arrows("tenure-cli", &["tenure"]),
    Arrows("tenure-bench", &["tenure", "tenure-servers"]),
    Arrows("tenure-faults", &["tenure", "tenure-testkit", "tenure-servers"]),
    Arrows("tenure-interop", &["tenure", "tenure-servers"]),
    Arrows("cron-job", &["tenure"]),
    Arrows("fenced-write", &["tenure"]),
    Arrows("flash-sale", &["tenure"]),
    Arrows("guides", &["tenure"]),
    Arrows("leader-worker", &["tenure"]),
    Arrows("metrics-export", &["tenure"]),
    Arrows("migration-guard", &["tenure"]),
    Arrows("web-once", &["tenure"]),
    Arrows("xtask", &[]),
];

/// What tests may use besides, by path and without a version, so that publishing never waits for it.
const FOR_TESTS: &[&str] = &["tenure-testkit", "tenure-servers"];

/// The crates that are stores.
pub(crate) fn stores() -> impl Iterator<Item = &'static str> {
    ARROWS
        .iter()
        .filter(|Arrows(_, uses)| *uses == STORE)
        .map(|Arrows(name, _)| *name)
}

pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    metadata.members().flat_map(check_crate).collect()
}

fn check_crate(package: &Package) -> Vec<Finding> {
    let Some(Arrows(_, allowed)) = ARROWS.iter().find(|Arrows(name, _)| *name == package.name) else {
        let what = format!("the crate `{}` is unknown", package.name);
        return vec![finding(
            package,
            what,
            "add it to ARROWS in xtask/src/tidy/arrows.rs",
        )];
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|dependency| is_ours(dependency));
    ours.filter_map(|dependency| check_arrow(package, dependency, allowed))
        .collect()
}

/// A crate by path, or one from a registry that has a name of ours.
fn is_ours(dependency: &Dependency) -> bool {
    dependency.path.is_some() || ARROWS.iter().any(|Arrows(name, _)| *name == dependency.name)
}

fn check_arrow(package: &Package, dependency: &Dependency, allowed: &[&str]) -> Option<Finding> {
    let (from, to) = (&package.name, &dependency.name);
    let for_tests = FOR_TESTS.contains(&to.as_str()) && dependency.kind == Some(Kind::Dev);
    if dependency.path.is_none() {
        let what = format!("`{from}` takes `{to}` from a registry");
        return Some(finding(package, what, "depend on it by path"));
    }
    if for_tests && dependency.req != "*" {
        let what = format!(
            "`{from}` asks its tests for `{to}` with a version, {}",
            dependency.req
        );
        return Some(finding(
            package,
            what,
            "name its path alone, so that `cargo publish` leaves it out",
        ));
    }
    if !for_tests && !allowed.contains(&to.as_str()) {
        let may = if allowed.is_empty() {
            "nothing".to_owned()
        } else {
            allowed.join(", ")
        };
        let kind = match dependency.kind {
            None => "",
            Some(Kind::Build) => "in its build script ",
            Some(Kind::Dev) => "in its tests ",
        };
        let what = format!("`{from}` {kind}uses `{to}`; of this workspace it may use {may}");
        return Some(finding(
            package,
            what,
            "turn the arrow round, or say in ARCHITECTURE.md why it must exist",
        ));
    }
    None
}

fn finding(package: &Package, what: String, instead: &str) -> Finding {
    Finding {
        file: package.manifest_path.clone(),
        line: 0,
        what,
        instead: instead.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [&str; 0] = [];

    /// A workspace of one crate, with one dependency written as `cargo metadata` writes it.
    fn findings(name: &str, dependency: &str) -> Vec<String> {
        let json = format!(
            r#"{{"workspace_members": ["id"], "packages": [{{"id": "id", "name": "{name}", "version": "1.0.0",
                "manifest_path": "{name}/Cargo.toml", "dependencies": [{dependency}]}}]}}"#
        );
        let metadata = Metadata::parse(&json).unwrap();
        check(&metadata).iter().map(ToString::to_string).collect()
    }

    fn by_path(name: &str, kind: &str, req: &str) -> String {
        format!(r#"{{"name": "{name}", "kind": {kind}, "req": "{req}", "path": "/w/{name}"}}"#)
    }

    #[test]
    fn the_arrows_of_the_design_are_allowed() {
        let from_registry = r#"{"name": "tokio", "kind": null, "req": "^1", "path": null}"#;
        assert_eq!(findings("tenure-backend", from_registry), NOTHING);
        for (from, to) in [
            ("tenure-endpoint", "tenure-backend"),
            ("tenure-sql", "tenure-backend"),
            ("tenure-sql", "tenure-endpoint"),
            ("tenure", "tenure-sql"),
            ("tenure-testkit", "tenure-backend"),
            ("tenure-cli", "tenure"),
            ("tenure-bench", "tenure"),
        ] {
            assert_eq!(
                findings(from, &by_path(to, "null", "^0.1.0")),
                NOTHING,
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn a_planted_arrow_is_found() {
        for (from, to) in [
            ("tenure-backend", "tenure-endpoint"),
            ("tenure-backend", "tenure-testkit"),
            ("tenure-sql", "tenure"),
            ("tenure-sql", "tenure-memory"),
            ("tenure-quorum", "tenure-redis"),
            ("tenure", "tenure-testkit"),
            ("tenure-testkit", "tenure"),
            ("tenure-cli", "tenure-backend"),
            ("tenure-bench", "tenure-memory"),
            ("tenure-servers", "tenure-backend"),
            ("xtask", "tenure-backend"),
        ] {
            for kind in ["null", "\"build\""] {
                let found = findings(from, &by_path(to, kind, "^0.1.0"));
                assert_eq!(found.len(), 1, "{from} -> {to}");
                assert!(
                    found[0].starts_with(&format!("{from}/Cargo.toml: `{from}` ")),
                    "{}",
                    found[0]
                );
                assert!(found[0].contains(&format!("uses `{to}`")), "{}", found[0]);
            }
        }
    }

    #[test]
    fn tests_may_use_the_testkit_and_the_servers_by_path_alone() {
        for to in FOR_TESTS {
            assert_eq!(findings("tenure-sql", &by_path(to, "\"dev\"", "*")), NOTHING);
            let found = findings("tenure-sql", &by_path(to, "\"dev\"", "^0.1.0"));
            assert!(found[0].contains("with a version, ^0.1.0"), "{}", found[0]);
        }
        let found = findings("tenure-sql", &by_path("tenure-memory", "\"dev\"", "*"));
        assert!(
            found[0].contains("in its tests uses `tenure-memory`"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn a_crate_of_ours_never_comes_from_a_registry() {
        let dependency = r#"{"name": "tenure-backend", "kind": null, "req": "^0.1.0", "path": null}"#;
        assert!(findings("tenure-sql", dependency)[0].contains("from a registry"));
    }

    #[test]
    fn an_unknown_crate_is_told_where_to_stand() {
        assert!(findings("tenure-consul", "")[0].contains("xtask/src/tidy/arrows.rs"));
        let found = findings("tenure-sql", &by_path("tenure-consul", "null", "*"));
        assert!(found[0].contains("uses `tenure-consul`"), "{}", found[0]);
    }

    #[test]
    fn the_stores_are_known_by_their_arrows() {
        let stores: Vec<_> = stores().collect();
        let all = [
            "tenure-memory",
            "tenure-redis",
            "tenure-quorum",
            "tenure-sql",
            "tenure-zookeeper",
            "tenure-etcd",
        ];
        assert_eq!(stores, all);
    }
}
