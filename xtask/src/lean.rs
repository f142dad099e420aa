//! Checks that three sets of features of `tenure` compile no store, client, TLS library or metrics that they do not
//! need.

use crate::process::{Failure, cargo, output};

/// Crates that few features may compile: our stores, clients of stores, TLS libraries, `cc`, which compiles C, and
/// `metrics`.
const CHECKED: &str = "tenure-memory tenure-sql tenure-redis tenure-quorum tenure-etcd tenure-zookeeper rusqlite tokio-postgres mysql_async redis \
    zookeeper-client tonic prost hyper aws-lc-sys aws-lc-rs openssl-sys ring rustls tokio-rustls libsqlite3-sys cc metrics";

/// Sets of features, and the crates of `CHECKED` that each may compile. Only TLS may compile C, for `ring`.
const LEAN: [(&str, &[&str]); 3] = [
    ("memory", &["tenure-memory"]),
    ("redis", &["tenure-redis", "redis"]),
    (
        "redis,tls",
        &["tenure-redis", "redis", "ring", "rustls", "tokio-rustls", "cc"],
    ),
];

/// Runs `cargo tree` for each set of features in `LEAN`. Fails on a crate that the set may not compile.
pub(crate) fn run() -> Result<(), Failure> {
    for (features, allowed) in LEAN {
        let choice = format!("--package tenure --no-default-features --features {features}");
        let tree = output(cargo(&format!(
            "tree --edges normal,build --prefix none {choice}"
        )))?;
        if let Some(unwanted) = unwanted(&tree, allowed) {
            let what = format!("`{choice}` compiles `{unwanted}`");
            return Err(format!("{what}: make the dependency optional, behind a feature of its own").into());
        }
        println!("lean: `{features}` alone compiles no other store, client, TLS or metrics");
    }
    Ok(())
}

fn unwanted<'a>(tree: &'a str, allowed: &[&str]) -> Option<&'a str> {
    let mut names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| CHECKED.split(' ').any(|checked| checked == *name) && !allowed.contains(name))
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
