//! Paths in errors, findings and events.

use std::path::Path;

use tenure_backend::harmless;

/// A path as people see it.
pub(crate) fn shown(path: &Path) -> String {
    harmless(&path.to_string_lossy()).into_owned()
}
