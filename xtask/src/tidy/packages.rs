//! Checks that the oldest Rust version that we support builds all packages.

use crate::metadata::Metadata;

/// The oldest Rust version that we support: `rust-version` of the workspace.
const COMPILER: &str = env!("CARGO_PKG_RUST_VERSION");

/// Checks that each package of ours declares `COMPILER`, and that no package of the lock file needs a newer version.
pub(crate) fn check(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let (name, version) = (&package.name, &package.version);
        let theirs = package.rust_version.as_deref();
        if metadata.is_member(package) && theirs != Some(COMPILER) {
            found.push(format!("`{name}`: write `rust-version.workspace = true`"));
        }
        if let Some(theirs) = theirs.filter(|theirs| parts(theirs) > parts(COMPILER)) {
            found.push(format!(
                "`{name} {version}` needs Rust {theirs}, and we promise {COMPILER}"
            ));
        }
    }
    found
}

fn parts(version: &str) -> [u32; 3] {
    let mut parts = [0; 3];
    for (part, text) in parts.iter_mut().zip(version.split('.')) {
        *part = text.parse().unwrap_or(u32::MAX);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_packages_promise_one_compiler_that_builds_all_others() {
        for (member, compiler, findings) in [
            ("id", COMPILER, 0),
            ("id", "1.80", 1),
            ("", "1.9", 0),
            ("", &format!("{COMPILER}.0"), 0),
            ("", "1.999", 1),
        ] {
            let metadata = serde_json::json!({"workspace_members": [member], "packages": [
                {"id": "id", "name": "a", "version": "1.0.0", "rust_version": compiler, "dependencies": []},
            ]});
            let found = check(&serde_json::from_value(metadata).unwrap());
            assert_eq!(found.len(), findings, "{member} {compiler}: {found:?}");
        }
    }
}
