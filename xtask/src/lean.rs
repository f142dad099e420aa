//! The promise that nobody compiles a store they did not ask for.
//! Not here: building each feature alone (`ci`).

use crate::process::{Failure, cargo, output};

/// What a choice of `tenure`'s features must not bring into a build unless it allows it: our stores, the clients of all
/// stores, TLS, and C, whose compilation `cc` gives away.
const BARRED: &[&str] = &[
    "tenure-memory",
    "tenure-sql",
    "tenure-redis",
    "rusqlite",
    "tokio-postgres",
    "mysql_async",
    "redis",
    "zookeeper-client",
    "tonic",
    "prost",
    "aws-lc-sys",
    "aws-lc-rs",
    "openssl-sys",
    "ring",
    "rustls",
    "libsqlite3-sys",
    "cc",
];

/// A choice of features, and what of all that it may bring.
struct Lean {
    features: &'static str,
    allows: &'static [&'static str],
}

/// What is promised, choice by choice.
const LEAN: &[Lean] = &[
    Lean {
        features: "memory",
        allows: &["tenure-memory"],
    },
    // No C: the client is Rust throughout.
    Lean {
        features: "redis",
        allows: &["tenure-redis", "redis"],
    },
    // No C but ring's.
    Lean {
        features: "redis,tls",
        allows: &["tenure-redis", "redis", "ring", "rustls", "cc"],
    },
];

/// Asks `cargo tree` for each choice, and fails on a crate that it must not bring.
pub(crate) fn run() -> Result<(), Failure> {
    for Lean { features, allows } in LEAN {
        let never: Vec<&str> = BARRED
            .iter()
            .copied()
            .filter(|name| !allows.contains(name))
            .collect();
        let mut command = cargo();
        command.args([
            "tree",
            "--package",
            "tenure",
            "--no-default-features",
            "--features",
            features,
        ]);
        command.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
        let tree = output(command)?;
        if let Some(unwanted) = find_unwanted(&tree, &never) {
            return Err(Failure::new(format!(
                "`tenure --no-default-features --features {features}` compiles `{unwanted}`: make the dependency \
                 optional, behind its store's feature",
            )));
        }
        println!(
            "lean: `{features}` alone compiles {} crates, none of {}",
            count(&tree),
            never.join(" ")
        );
    }
    Ok(())
}

fn find_unwanted<'a>(tree: &'a str, never: &[&str]) -> Option<&'a str> {
    names(tree).find(|name| never.contains(name))
}

fn names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split_whitespace().next())
}

fn count(tree: &str) -> usize {
    names(tree).collect::<std::collections::BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str =
        "tenure v0.1.0 (/w)\nlibc v0.2.1\nlinux-raw-sys v0.1.0\nlibsqlite3-sys v0.39.1\nlibc v0.2.1 (*)\n";

    #[test]
    fn an_unwanted_crate_is_found_by_its_whole_name() {
        assert_eq!(
            find_unwanted(TREE, &["cc", "libsqlite3-sys"]),
            Some("libsqlite3-sys")
        );
        assert_eq!(find_unwanted(TREE, &["sqlite", "lib", "tenure-sql"]), None);
        assert_eq!(count(TREE), 4);
    }
}
