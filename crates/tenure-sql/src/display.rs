//! Paths in errors, findings and events.

use std::path::Path;

use tenure_backend::escape_control;

/// A path as people see it.
pub(crate) fn display_path(path: &Path) -> String {
    escape_control(&path.to_string_lossy()).into_owned()
}
