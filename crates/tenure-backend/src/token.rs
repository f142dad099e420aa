//! Fencing tokens: numbers that rise from each grant of a key to the next conflicting one.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// A number that is greater than the token of every conflicting grant of the same key before it.
///
/// Send it to the protected resource with each write. A resource that remembers the greatest token it has seen can refuse
/// the writes of a holder that was paused beyond its lease. A token is between 1 and `i64::MAX`, so it fits a signed
/// SQL column. The order of tokens is meaningful between conflicting grants, not between readers that hold together.
///
/// # Examples
/// ```
/// use tenure_backend::FencingToken;
///
/// let token = FencingToken::new(7).unwrap();
/// assert_eq!(token.as_i64(), 7);
/// assert!(token > FencingToken::new(6).unwrap());
/// assert_eq!(FencingToken::new(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct FencingToken(std::num::NonZeroU64);

impl FencingToken {
    /// The greatest token: `i64::MAX`.
    pub const MAX: u64 = i64::MAX as u64;

    /// Makes a token. Returns `None` unless the number is between 1 and [`FencingToken::MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        match std::num::NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(FencingToken(number)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number as a signed integer, for SQL's `BIGINT`.
    pub const fn as_i64(self) -> i64 {
        self.0.get().cast_signed()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        token.as_i64()
    }
}

/// The error for a number or text that is no [`FencingToken`]: tokens are 1 to [`FencingToken::MAX`].
///
/// # Examples
/// ```
/// use tenure_backend::FencingToken;
///
/// let refused = FencingToken::try_from(0u64).unwrap_err();
/// assert_eq!(refused.to_string(), "a fencing token is a number from 1 to 9223372036854775807");
/// assert_eq!("7".parse::<FencingToken>().map(i64::from), Ok(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is a number from 1 to {}", FencingToken::MAX)]
#[non_exhaustive]
pub struct InvalidToken;

impl TryFrom<u64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        FencingToken::new(number).ok_or(InvalidToken)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        u64::try_from(number).map_err(|_| InvalidToken)?.try_into()
    }
}

impl FromStr for FencingToken {
    type Err = InvalidToken;

    /// Reads decimal digits, as [`Display`](fmt::Display) writes them.
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| is_number);
        number.ok_or(InvalidToken)?.try_into()
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        FencingToken::new(number).ok_or_else(|| {
            serde::de::Error::custom(format!("a fencing token is 1 to {}, not {number}", Self::MAX))
        })
    }
}

/// Consecutive tokens that one grant reserves: `count` of them, starting at `first`.
///
/// A client that hands a claim over to its own next waiter uses the next token of the range. So each holder has its
/// own token, and drawing it needs no round trip.
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use tenure_backend::{FencingToken, TokenRange};
///
/// let first = FencingToken::new(7).unwrap();
/// let range = TokenRange::new(first, NonZeroU32::new(3).unwrap()).unwrap();
/// // One grant by the store and two local hand-overs, each with its own token.
/// assert_eq!([range.nth(0), range.nth(1), range.nth(2)].map(|token| token.unwrap().get()), [7, 8, 9]);
/// assert_eq!(range.nth(3), None, "the range is used up: the client releases the claim");
/// assert_eq!(range.last().get(), 9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    first: FencingToken,
    count: NonZeroU32,
}

impl TokenRange {
    /// Makes a range. Returns `None` if its last token would exceed [`FencingToken::MAX`].
    pub const fn new(first: FencingToken, count: NonZeroU32) -> Option<Self> {
        match FencingToken::new(first.get() + count.get() as u64 - 1) {
            Some(_) => Some(TokenRange { first, count }),
            None => None,
        }
    }

    /// The first token, which is that of the store's grant.
    pub const fn first(&self) -> FencingToken {
        self.first
    }

    /// Number of tokens in the range.
    pub const fn count(&self) -> NonZeroU32 {
        self.count
    }

    /// The token of the `n`th holder, counted from 0; `None` if the range has no more tokens.
    pub const fn nth(&self, n: u32) -> Option<FencingToken> {
        if n < self.count.get() {
            FencingToken::new(self.first.get() + n as u64)
        } else {
            None
        }
    }

    /// The greatest token of the range. The key's counter must never fall below it.
    pub const fn last(&self) -> FencingToken {
        match self.nth(self.count.get() - 1) {
            Some(last) => last,
            None => self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_convert_to_and_from_numbers_and_text() {
        let token = FencingToken::new(7).unwrap();
        assert_eq!((u64::from(token), i64::from(token)), (7, 7));
        assert_eq!(FencingToken::try_from(7u64), Ok(token));
        assert_eq!(FencingToken::try_from(7i64), Ok(token));
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!(FencingToken::try_from(FencingToken::MAX + 1), Err(InvalidToken));
        assert_eq!(FencingToken::try_from(0i64), Err(InvalidToken));
        assert_eq!(FencingToken::try_from(-1i64), Err(InvalidToken));
        for text in [
            "",
            "0",
            "+7",
            "-7",
            " 7",
            "7.0",
            "9223372036854775808",
            "99999999999999999999",
        ] {
            assert_eq!(text.parse::<FencingToken>(), Err(InvalidToken), "{text:?}");
        }
    }

    #[test]
    fn a_token_range_ends_at_the_greatest_token_at_most() {
        let last = FencingToken::new(FencingToken::MAX).unwrap();
        assert!(TokenRange::new(last, NonZeroU32::MIN).is_some());
        assert_eq!(TokenRange::new(last, NonZeroU32::new(2).unwrap()), None);
    }
}
