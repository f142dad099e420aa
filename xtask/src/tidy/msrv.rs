//! No dependency in the lock file needs a newer compiler than we promise.
//! Not here: newer parts of the standard library; clippy's `incompatible_msrv` finds those.

use super::finding::Finding;
use crate::metadata::Metadata;

/// The oldest compiler we promise, which every crate takes from the workspace.
const OURS: &str = env!("CARGO_PKG_RUST_VERSION");

pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    let newer = metadata.foreign().filter_map(|package| {
        let theirs = package.rust_version.as_deref()?;
        (parts(theirs) > parts(OURS)).then(|| Finding {
            file: "Cargo.lock".into(),
            line: 0,
            what: format!(
                "`{} {}` needs Rust {theirs}; we promise {OURS}",
                package.name, package.version
            ),
            instead: format!(
                "cargo update {} --precise an older version, or leave it",
                package.name
            ),
        })
    });
    newer.collect()
}

/// `1.89` and `1.89.0` are the same version.
fn parts(version: &str) -> [u32; 3] {
    let mut parts = [0; 3];
    for (part, text) in parts.iter_mut().zip(version.split('.')) {
        // Cargo accepts nothing but numbers here.
        *part = text.parse().unwrap_or(u32::MAX);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rust_version: &str) -> usize {
        let json = format!(
            r#"{{"workspace_members": [], "packages": [{{"id": "id", "name": "a", "version": "1.0.0",
                "manifest_path": "a/Cargo.toml", "dependencies": [], "rust_version": {rust_version}}}]}}"#
        );
        check(&Metadata::parse(&json).unwrap()).len()
    }

    #[test]
    fn a_dependency_that_needs_a_newer_compiler_is_found() {
        for fits in [
            "null".to_owned(),
            "\"1.9\"".to_owned(),
            "\"0.1000\"".to_owned(),
            format!("\"{OURS}\""),
        ] {
            assert_eq!(findings(&fits), 0, "{fits}");
        }
        assert_eq!(findings(&format!("\"{OURS}.0\"")), 0);
        for newer in [
            format!("\"{OURS}.1\""),
            "\"1.999\"".to_owned(),
            "\"2.0\"".to_owned(),
        ] {
            assert_eq!(findings(&newer), 1, "{newer}");
        }
    }
}
