//! Lock keys, and the check that a name can be one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a lock: 1 to 200 bytes of UTF-8 without control characters.
///
/// A key is stored and shown as written and compared byte by byte. It is never hashed, trimmed or changed in case.
/// Cloning it copies a pointer.
///
/// # Examples
/// ```
/// use tenure_backend::LockKey;
///
/// let key = LockKey::new("order:42").unwrap();
/// assert_eq!(key.as_str(), "order:42");
/// assert!(LockKey::new("").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// Length of the longest key, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Checks a name and makes it a key.
    ///
    /// # Errors
    /// [`InvalidKey`] names the rule that the name breaks: choose another name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidKey> {
        let name = name.as_ref();
        match name.len() {
            0 => return Err(InvalidKey::Empty),
            len if len > Self::MAX_BYTES => return Err(InvalidKey::TooLong { bytes: len }),
            _ => {}
        }
        match name.char_indices().find(|(_, c)| c.is_control()) {
            Some((at, found)) => Err(InvalidKey::ControlCharacter { at, found }),
            None => Ok(LockKey(Arc::from(name))),
        }
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockKey {
    type Err = InvalidKey;

    fn from_str(name: &str) -> Result<Self, InvalidKey> {
        LockKey::new(name)
    }
}

impl TryFrom<&str> for LockKey {
    type Error = InvalidKey;

    fn try_from(name: &str) -> Result<Self, InvalidKey> {
        LockKey::new(name)
    }
}

impl TryFrom<String> for LockKey {
    type Error = InvalidKey;

    fn try_from(name: String) -> Result<Self, InvalidKey> {
        LockKey::new(name)
    }
}

impl std::borrow::Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Why a name cannot be a [`LockKey`].
///
/// # Examples
/// ```
/// use tenure_backend::{InvalidKey, LockKey};
///
/// assert_eq!(LockKey::new(""), Err(InvalidKey::Empty));
/// // The limit counts bytes, not characters.
/// assert_eq!(LockKey::new("ä".repeat(101)), Err(InvalidKey::TooLong { bytes: 202 }));
/// let refused = LockKey::new("order\n42").unwrap_err();
/// assert_eq!(refused.to_string(), r"a key has no control characters, this one has '\n' at byte 5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The name is empty.
    #[error("a key must not be empty")]
    Empty,
    /// The name is longer than [`LockKey::MAX_BYTES`].
    #[error(
        "a key has at most {} bytes, this one has {bytes}: shorten it, or hash it yourself",
        LockKey::MAX_BYTES
    )]
    TooLong {
        /// Length of the name, in bytes.
        bytes: usize,
    },
    /// The name has a control character, such as a line break or NUL.
    #[error("a key has no control characters, this one has {found:?} at byte {at}")]
    ControlCharacter {
        /// Offset of the character, in bytes.
        at: usize,
        /// The character.
        found: char,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_200_bytes() {
        let too_long = |bytes| Err(InvalidKey::TooLong { bytes });
        assert_eq!(LockKey::new(""), Err(InvalidKey::Empty));
        assert!(LockKey::new("k").is_ok());
        assert!(LockKey::new("k".repeat(200)).is_ok());
        assert_eq!(LockKey::new("k".repeat(201)), too_long(201));
        assert_eq!(LockKey::new("ä".repeat(101)), too_long(202));
    }

    #[test]
    fn keys_convert_from_text_and_back() {
        let key = LockKey::new("order:42").unwrap();
        assert_eq!("order:42".parse(), Ok(key.clone()));
        assert_eq!(LockKey::try_from("order:42"), Ok(key.clone()));
        assert_eq!(LockKey::try_from(key.to_string()), Ok(key.clone()));
        assert_eq!(LockKey::try_from(""), Err(InvalidKey::Empty));
        let text: &str = key.as_ref();
        assert_eq!(text, "order:42");
    }

    #[test]
    fn control_characters_are_refused_and_everything_else_is_kept() {
        for bad in ["a\nb", "\0", "tab\there", "\u{7f}", "next line\u{85}"] {
            assert!(
                matches!(LockKey::new(bad), Err(InvalidKey::ControlCharacter { .. })),
                "{bad:?}"
            );
        }
        for good in [
            " ",
            "{",
            "}{",
            "päron-鎖",
            "'; DROP TABLE x; --",
            "%s%n",
            "A",
            "a ",
            "../x",
        ] {
            assert_eq!(LockKey::new(good).map(|k| k.to_string()), Ok(good.to_owned()));
        }
    }
}
