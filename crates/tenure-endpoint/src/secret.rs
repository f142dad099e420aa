//! A credential that formatters do not show.

use std::fmt;

/// A credential that only [`expose`](Secret::expose) returns.
///
/// `Debug` writes `Secret(..)`. The type has no `Display`, and no methods to compare or serialize it or to read its
/// length. No guarantee that its memory is wiped after use.
///
/// # Examples
///
/// ```
/// let secret = tenure_endpoint::Secret::new("s3cr3t");
/// assert_eq!(format!("{secret:?}"), "Secret(..)");
/// assert_eq!(secret.expose(), "s3cr3t");
/// ```
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the credential, to send it to the store.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
