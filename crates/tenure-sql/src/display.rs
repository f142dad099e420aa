//! Formats paths for errors, the findings of `doctor`, and log events.

use std::path::Path;

use tenure_backend::escape_control;

/// The path as text, with control characters escaped.
pub(crate) fn display_path(path: &Path) -> String {
    escape_control(&path.to_string_lossy()).into_owned()
}
