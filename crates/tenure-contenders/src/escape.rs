//! Names of locks as parts of a path on the server.

use std::fmt::Write as _;

use tenure_backend::escape_control;

/// A character of a name.
///
/// # Examples
/// See [`escape`].
#[derive(Clone, Copy, Debug)]
pub struct Character {
    /// Its position in the name, in bytes.
    pub at: usize,
    /// The character.
    pub is: char,
    /// Whether it is the first one of a part of the path.
    pub begins_part: bool,
}

/// Escapes what would be invisible in a path, slashes that would make an empty part of it, and what `is_special` names.
///
/// # Examples
/// ```
/// use tenure_contenders::{escape, unescape};
///
/// let escaped = |name: &str| escape(name, |character| character.begins_part && character.is == '.');
/// assert_eq!(escaped("//a/.b%"), "%2F/a/%2Eb%25");
/// assert_eq!(unescape("%2F/a/%2Eb%25", escaped).as_deref(), Some("//a/.b%"));
/// assert_eq!(unescape("a/.b", escaped), None, "a name that `escaped` does not write");
/// ```
#[must_use]
pub fn escape(name: &str, is_special: impl Fn(Character) -> bool) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, is) in name.char_indices() {
        let begins_part = escaped.is_empty() || escaped.ends_with('/');
        let is_empty_part = is == '/' && (begins_part || at + 1 == name.len());
        let mut bytes = [0; 4];
        let text = is.encode_utf8(&mut bytes);
        let character = Character { at, is, begins_part };
        if is == '%' || is_empty_part || escape_control(text) != *text || is_special(character) {
            for byte in text.bytes() {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(is);
        }
    }
    escaped
}

/// Undoes an escape. `None` for a text that it does not write: the record of a foreign program, whose lock Tenure cannot name.
#[must_use]
pub fn unescape(escaped: &str, escape: impl Fn(&str) -> String) -> Option<String> {
    let mut name = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            name.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            name.push(*first);
            rest = after;
        }
    }
    let name = String::from_utf8(name).ok()?;
    (escape(&name) == escaped).then_some(name)
}
