//! The promise that nobody compiles a store they did not ask for.

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

/// Each promised choice of features, and the crates of `BARRED` that it may bring. No C without TLS, which needs ring's.
const LEAN: &[(&str, &[&str])] = &[
    ("memory", &["tenure-memory"]),
    ("redis", &["tenure-redis", "redis"]),
    ("redis,tls", &["tenure-redis", "redis", "ring", "rustls", "cc"]),
];

/// Asks `cargo tree` for each choice, and fails on a crate that it must not bring.
pub(crate) fn run() -> Result<(), Failure> {
    for (features, allowed) in LEAN {
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
        if let Some(unwanted) = unwanted(&tree, allowed) {
            return Err(Failure::new(format!(
                "`tenure --no-default-features --features {features}` compiles `{unwanted}`: make the dependency \
                 optional, behind its store's feature",
            )));
        }
        println!("lean: `{features}` alone compiles no other store, client or TLS");
    }
    Ok(())
}

/// The first crate in the output of `cargo tree` that is barred and not allowed.
fn unwanted<'a>(tree: &'a str, allowed: &[&str]) -> Option<&'a str> {
    let mut names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| BARRED.contains(name) && !allowed.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwanted_crate_is_found_by_its_whole_name() {
        let tree = "tenure v0.1.0 (/w)\nring-like v0.2.1\ncc v1.0.0\nlibc v0.2.1 (*)\n";
        assert_eq!(unwanted(tree, &["ring"]), Some("cc"));
        assert_eq!(unwanted(tree, &["cc"]), None);
    }
}
