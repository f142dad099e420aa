//! The oldest compiler that we promise, and the reasons for our dependencies.

use crate::metadata::Metadata;

/// The oldest compiler that we promise: `rust-version` of the workspace.
const COMPILER: &str = env!("CARGO_PKG_RUST_VERSION");

/// Checks that our packages promise one compiler, that it builds every package of the lock file, and that the table
/// in ARCHITECTURE.md gives a reason for each dependency.
pub(crate) fn check(metadata: &Metadata, architecture: &str) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata.foreign() {
        if let Some(theirs) = package.rust_version.as_deref()
            && parts(theirs) > parts(COMPILER)
        {
            let (name, version) = (&package.name, &package.version);
            found.push(format!(
                "`{name} {version}` needs Rust {theirs}, and we promise {COMPILER}"
            ));
        }
    }
    let reasons = reasons(architecture);
    for package in metadata.members() {
        let name = &package.name;
        if package.rust_version.as_deref() != Some(COMPILER) {
            found.push(format!("`{name}`: write `rust-version.workspace = true`"));
        }
        let taken = package.dependencies.iter().filter(|taken| taken.path.is_none());
        for taken in taken.filter(|taken| !reasons.contains(&&*taken.name)) {
            found.push(format!(
                "`{name}` uses `{}`: ARCHITECTURE.md does not say why",
                taken.name
            ));
        }
    }
    found
}

/// `1.89` and `1.89.0` are the same version.
fn parts(version: &str) -> [u32; 3] {
    let mut parts = [0; 3];
    for (part, text) in parts.iter_mut().zip(version.split('.')) {
        *part = text.parse().unwrap_or(u32::MAX);
    }
    parts
}

/// The names in the first column of the table of dependencies.
fn reasons(architecture: &str) -> Vec<&str> {
    let (_, table) = architecture.split_once("\n## Dependencies\n").unwrap_or_default();
    let rows = table.lines().take_while(|line| !line.starts_with("## "));
    let first = rows.filter_map(|row| row.strip_prefix("| ")?.split('|').next());
    first.flat_map(|names| names.trim().split(", ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a package that needs this compiler, one of ours if `member` is its ID.
    fn count(member: &str, compiler: &str, dependency: &str) -> usize {
        let json = format!(
            r#"{{"workspace_members": ["{member}"], "packages": [{{"id": "id", "name": "a", "version": "1.0.0",
                "manifest_path": "a/Cargo.toml", "rust_version": "{compiler}", "dependencies": [{{"kind": null,
                "name": "{dependency}", "req": "^1", "path": null}}]}}]}}"#
        );
        let architecture =
            "\n## Dependencies\n\n| crate | why |\n|---|---|\n| tokio, serde | usual |\n\n## X\n| x |";
        check(&Metadata::parse(&json).unwrap(), architecture).len()
    }

    #[test]
    fn all_packages_promise_one_compiler() {
        assert_eq!(count("id", COMPILER, "serde"), 0);
        assert_eq!(count("id", "1.80", "serde"), 1);
    }

    #[test]
    fn a_dependency_has_a_reason_and_our_compiler_builds_it() {
        assert_eq!(count("id", COMPILER, "x"), 1);
        assert_eq!(count("", "1.9", "x"), 0);
        assert_eq!(count("", &format!("{COMPILER}.0"), "x"), 0);
        assert_eq!(count("", "1.999", "x"), 1);
    }
}
