//! Which crate of the workspace may use which: every arrow points to the contract.

use crate::metadata::{Dependency, Kind, Metadata, Package};

const CONTRACT: &str = "tenure-backend";

/// The crates that are stores, also those to come.
pub(crate) const STORES: [&str; 6] = [
    "tenure-memory",
    "tenure-redis",
    "tenure-quorum",
    "tenure-sql",
    "tenure-zookeeper",
    "tenure-etcd",
];

/// What tests may use as well, by path and without a version, so that publishing never waits for it.
const FOR_TESTS: [&str; 2] = ["tenure-testkit", "tenure-servers"];

/// The suite's own tests plant bugs in the store in memory.
const UNDER_TEST: (&str, &str) = ("tenure-testkit", "tenure-memory");

/// The crates of the workspace that `from` may use. `None` if `from` is unknown.
fn allowed(from: &str) -> Option<Vec<&'static str>> {
    Some(match from {
        CONTRACT | "tenure-servers" | "xtask" => vec![],
        "tenure-endpoint" | "tenure-testkit" => vec![CONTRACT],
        store if STORES.contains(&store) => vec![CONTRACT, "tenure-endpoint"],
        "tenure" => [&[CONTRACT, "tenure-endpoint"], &STORES[..]].concat(),
        "tenure-bench" | "tenure-interop" => vec!["tenure", "tenure-servers"],
        "tenure-faults" => vec!["tenure", "tenure-testkit", "tenure-servers"],
        "tenure-cli" | "cron-job" | "fenced-write" | "flash-sale" | "guides" | "leader-worker"
        | "metrics-export" | "migration-guard" | "web-once" => vec!["tenure"],
        _ => return None,
    })
}

/// Finds every dependency between our crates that the table does not allow.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    metadata.members().flat_map(check_crate).collect()
}

fn check_crate(package: &Package) -> Vec<String> {
    let from = &package.name;
    let Some(allowed) = allowed(from) else {
        return vec![format!("`{from}` is unknown: add it to xtask/src/tidy/arrows.rs")];
    };
    let found = package
        .dependencies
        .iter()
        .filter_map(|dependency| check_arrow(from, dependency, &allowed));
    found.map(|what| format!("`{from}` {what}")).collect()
}

fn check_arrow(from: &str, dependency: &Dependency, may_use: &[&str]) -> Option<String> {
    let Dependency {
        name: to,
        kind,
        req,
        path,
    } = dependency;
    if path.is_none() {
        return allowed(to).map(|_| format!("takes `{to}` from a registry: depend on it by path"));
    }
    let for_tests = FOR_TESTS.contains(&to.as_str()) || (from, to.as_str()) == UNDER_TEST;
    if *kind == Some(Kind::Dev) && for_tests {
        return (req != "*").then(|| format!("gives its tests `{to}` with a version: name its path alone"));
    }
    let may = may_use.contains(&to.as_str());
    (!may).then(|| {
        format!(
            "uses `{to}`; of this workspace it may use [{}]",
            may_use.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_PATH: &str = r#""/w""#;
    const BUILD: &str = r#""build""#;
    const DEV: &str = r#""dev""#;

    /// Checks a crate with one dependency, written as `cargo metadata` writes it.
    fn findings(from: &str, to: &str, kind: &str, version: &str, path: &str) -> String {
        let json = format!(
            r#"{{"workspace_members": ["id"], "packages": [{{"id": "id", "name": "{from}", "version": "1.0.0",
                "manifest_path": "a/Cargo.toml", "dependencies": [{{"name": "{to}", "kind": {kind},
                "req": "{version}", "path": {path}}}]}}]}}"#
        );
        check(&Metadata::parse(&json).unwrap()).join("\n")
    }

    #[test]
    fn the_arrows_of_the_design_are_allowed() {
        for (from, to, kind, version, path) in [
            (CONTRACT, "tokio", "null", "^1", "null"),
            ("tenure-sql", CONTRACT, "null", "^0.1.0", BY_PATH),
            ("tenure", "tenure-sql", "null", "^0.1.0", BY_PATH),
            ("tenure-cli", "tenure", "null", "^0.1.0", BY_PATH),
            ("tenure-sql", "tenure-testkit", DEV, "*", BY_PATH),
            ("tenure-testkit", "tenure-memory", DEV, "*", BY_PATH),
        ] {
            assert_eq!(findings(from, to, kind, version, path), "", "{from} -> {to}");
        }
    }

    #[test]
    fn any_other_arrow_is_found() {
        for (from, to, kind, version, path, what) in [
            (CONTRACT, "tenure-endpoint", "null", "^1", BY_PATH, "uses"),
            ("tenure-sql", "tenure", BUILD, "^1", BY_PATH, "uses"),
            ("tenure-cli", CONTRACT, "null", "^1", BY_PATH, "uses"),
            ("tenure", "tenure-testkit", "null", "*", BY_PATH, "uses"),
            ("tenure-sql", "tenure-memory", DEV, "*", BY_PATH, "uses"),
            ("tenure-testkit", "tenure-memory", "null", "*", BY_PATH, "uses"),
            (
                "tenure-sql",
                "tenure-testkit",
                DEV,
                "^1",
                BY_PATH,
                "with a version",
            ),
            ("tenure-sql", CONTRACT, "null", "^1", "null", "from a registry"),
            ("tenure-consul", CONTRACT, "null", "^1", BY_PATH, "is unknown"),
        ] {
            let found = findings(from, to, kind, version, path);
            assert!(found.contains(what), "{from} -> {to}: {found}");
        }
    }
}
