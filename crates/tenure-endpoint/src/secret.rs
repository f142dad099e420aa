//! A credential that no formatter shows.

use std::fmt;

/// Holds a credential that only [`expose`](Secret::expose) gives out.
///
/// `Debug` writes `Secret(..)`, there is no `Display`, and no method compares, measures or serializes it.
/// No guarantee that its memory is wiped after use.
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

    /// Gives the credential out, for the one line that sends it to the store.
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
