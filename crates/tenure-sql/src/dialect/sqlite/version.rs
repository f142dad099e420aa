//! Recognizes versions of SQLite with a bug that can damage lock files.

use std::sync::Once;

/// Describes the bug that can damage a lock file, if this version of SQLite has the bug.
///
/// Up to 3.51.2, a checkpoint that runs while another connection resets the log may omit pages of later commits, and
/// so damage the file: <https://sqlite.org/wal.html#walresetbug>. 3.44.6 and 3.50.7 have the fix too.
pub(super) fn wal_reset_bug(version: i32) -> Option<String> {
    let is_fixed = matches!(version, 3_044_006..3_045_000 | 3_050_007..3_051_000 | 3_051_003..);
    let [major, minor, patch] = [version / 1_000_000, version / 1_000 % 1_000, version % 1_000];
    (!is_fixed).then(|| {
        format!(
            "SQLite {major}.{minor}.{patch} may damage a lock file that several processes use \
             (https://sqlite.org/wal.html#walresetbug)"
        )
    })
}

/// Logs a warning if this SQLite may damage lock files. `warned` limits it to one per process.
pub(super) fn warn(version: i32, warned: &Once) {
    if let Some(bug) = wal_reset_bug(version) {
        warned.call_once(|| tracing::warn!("{bug}: use SQLite 3.51.3 or later"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_recognized() {
        for version in [
            3_007_000, 3_040_001, 3_044_005, 3_045_000, 3_050_006, 3_051_000, 3_051_002,
        ] {
            assert!(wal_reset_bug(version).is_some(), "{version}");
        }
        for version in [3_044_006, 3_050_007, 3_051_003, 3_052_000, 3_053_000, 4_000_000] {
            assert_eq!(wal_reset_bug(version), None, "{version}");
        }
        let bug = wal_reset_bug(3_040_001).expect("it is older");
        assert!(bug.starts_with("SQLite 3.40.1 "), "{bug}");
    }

    #[test]
    fn an_old_version_is_reported_once() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let logger = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(Arc::new(log.reopen().expect("it is open")));
        let warnings = || {
            let text = std::fs::read_to_string(log.path());
            text.expect("it is text").lines().count()
        };
        let warned = Once::new();
        tracing::subscriber::with_default(logger.finish(), || {
            warn(3_051_003, &warned);
            assert_eq!(warnings(), 0);
            warn(3_051_002, &warned);
            warn(3_051_002, &warned);
        });
        assert_eq!(warnings(), 1);
    }
}
