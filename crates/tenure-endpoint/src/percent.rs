//! Percent-decoding of one part of a URL.

use percent_encoding::percent_decode_str;

use crate::error::{InvalidUrl, Part};

/// Percent-decodes one part of a URL. A `+` stays a `+`, because it means a space only in HTML forms.
pub(crate) fn decode(text: &str, part: Part) -> Result<String, InvalidUrl> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if every_percent_is_followed_by_hex(text) && !decoded.contains('\0') => {
            Ok(decoded.into())
        }
        _ => Err(InvalidUrl::Encoding(part)),
    }
}

/// Returns false if a `%` lacks two hex digits, as in `%zz`, `%1` or a final `%`, which the decoder would keep.
fn every_percent_is_followed_by_hex(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let mut digits = after.bytes();
        let mut hex = || digits.next().is_some_and(|digit| digit.is_ascii_hexdigit());
        hex() && hex()
    })
}
