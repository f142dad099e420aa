//! Keys as they were written, checked before a store is touched.

use tenure::LockKey;

use crate::words::{Failure, shortened};

/// One key.
pub(super) fn key(name: &str) -> Result<LockKey, Failure> {
    LockKey::new(name).map_err(|why| Failure::usage(format!("{:?} cannot be a key", shortened(name)), why))
}
