//! Checks which crates of the workspace depend on each other: dependencies may lead only towards `tenure-backend`.

use crate::metadata::{Dependency, Metadata};

const CONTRACT: &str = "tenure-backend";

/// Crates that implement a store. Some do not exist yet.
pub(crate) const STORES: [&str; 6] = [
    "tenure-memory",
    "tenure-redis",
    "tenure-quorum",
    "tenure-sql",
    "tenure-zookeeper",
    "tenure-etcd",
];

/// Crates that any crate's tests may use, by path and without a version: `cargo publish` then ignores the dependency.
const FOR_TESTS: [&str; 2] = ["tenure-testkit", "tenure-servers"];

/// More dependencies that only tests may use: the conformance suite is tested on a memory store with planted bugs,
/// and the quorum store on members in memory and on Redis.
const UNDER_TEST: [(&str, &str); 3] = [
    ("tenure-testkit", "tenure-memory"),
    ("tenure-quorum", "tenure-memory"),
    ("tenure-quorum", "tenure-redis"),
];

/// The crates of this workspace that the crate `from` may depend on; `None` if this list lacks `from`.
fn allowed(from: &str) -> Option<Vec<&'static str>> {
    Some(match from {
        CONTRACT | "tenure-servers" | "xtask" => vec![],
        "tenure-contenders" | "tenure-endpoint" | "tenure-testkit" => vec![CONTRACT],
        "tenure-etcd" | "tenure-zookeeper" => vec![CONTRACT, "tenure-contenders", "tenure-endpoint"],
        store if STORES.contains(&store) => vec![CONTRACT, "tenure-endpoint"],
        "tenure" => [&[CONTRACT, "tenure-endpoint"], &STORES[..]].concat(),
        "tenure-interop" => vec!["tenure", "tenure-servers"],
        "tenure-bench" => vec![
            "tenure",
            "tenure-etcd",
            "tenure-interop",
            "tenure-servers",
            "tenure-zookeeper",
        ],
        "tenure-faults" => vec!["tenure", "tenure-testkit", "tenure-servers"],
        "tenure-cli" | "cron-job" | "fenced-write" | "flash-sale" | "guides" | "leader-worker"
        | "metrics-export" | "migration-guard" | "web-once" => vec!["tenure"],
        _ => return None,
    })
}

/// Returns a message for each crate that `allowed` lacks, and for each dependency in the workspace that breaks a rule.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata.members() {
        let from = &package.name;
        let Some(allowed) = allowed(from) else {
            found.push(format!("`{from}` is unknown: add it to xtask/src/tidy/arrows.rs"));
            continue;
        };
        for dependency in &package.dependencies {
            let what = check_arrow(from, dependency, &allowed);
            found.extend(what.map(|what| format!("`{from}` {what}")));
        }
    }
    found
}

fn check_arrow(from: &str, dependency: &Dependency, may_use: &[&str]) -> Option<String> {
    let to = dependency.name.as_str();
    if dependency.path.is_none() {
        return allowed(to).map(|_| format!("takes `{to}` from a registry: depend on it by path"));
    }
    // Tests of a crate may depend on the crate itself, for a feature that only they use.
    let for_tests = FOR_TESTS.contains(&to) || UNDER_TEST.contains(&(from, to)) || from == to;
    if dependency.kind.as_deref() == Some("dev") && for_tests {
        let has_version = dependency.req != "*";
        return has_version.then(|| format!("gives its tests `{to}` with a version: name its path alone"));
    }
    let may = may_use.contains(&to);
    let may_use = may_use.join(", ");
    (!may).then(|| format!("uses `{to}`; of this workspace it may use [{may_use}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns: crate, its dependency, kind of dependency, version, and part of the expected finding (empty: none).
    const CASES: [(&str, &str, Option<&str>, &str, &str); 14] = [
        ("tenure-sql", CONTRACT, None, "^0.1.0", ""),
        ("tenure", "tenure-sql", None, "^0.1.0", ""),
        ("tenure-cli", "tenure", None, "^0.1.0", ""),
        ("tenure-sql", "tenure-testkit", Some("dev"), "*", ""),
        ("tenure-testkit", "tenure-memory", Some("dev"), "*", ""),
        ("tenure-sql", "tenure-sql", Some("dev"), "*", ""),
        (CONTRACT, "tenure-endpoint", None, "^1", "uses"),
        ("tenure-sql", "tenure", Some("build"), "^1", "uses"),
        ("tenure-cli", CONTRACT, None, "^1", "uses"),
        ("tenure", "tenure-testkit", None, "*", "uses"),
        ("tenure-sql", "tenure-memory", Some("dev"), "*", "uses"),
        ("tenure-testkit", "tenure-memory", None, "*", "uses"),
        ("tenure-sql", "tenure-testkit", Some("dev"), "^1", "version"),
        ("tenure-consul", CONTRACT, None, "^1", "is unknown"),
    ];

    fn findings(from: &str, to: &str, kind: Option<&str>, version: &str, path: Option<&str>) -> String {
        let metadata = serde_json::json!({"workspace_members": ["id"], "packages": [
            {"id": "id", "name": from, "version": "1.0.0",
                "dependencies": [{"name": to, "kind": kind, "req": version, "path": path}]},
        ]});
        check(&serde_json::from_value(metadata).unwrap()).join("\n")
    }

    #[test]
    fn only_the_arrows_of_the_design_are_allowed() {
        for (from, to, kind, version, expected) in CASES {
            let found = findings(from, to, kind, version, Some("/w"));
            assert_eq!(found.is_empty(), expected.is_empty(), "{from} -> {to}: {found}");
            assert!(found.contains(expected), "{from} -> {to}: {found}");
        }
    }

    #[test]
    fn only_our_own_crates_are_barred_from_a_registry() {
        assert_eq!(findings(CONTRACT, "tokio", None, "^1", None), "");
        assert!(findings("tenure-sql", CONTRACT, None, "^1", None).contains("from a registry"));
    }
}
