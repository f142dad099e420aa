//! How the scripts' answers read. Whoever called decides what they mean.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::Value;
use tenure_backend::{FencingToken, TokenRange};

/// Where a claim stands, as a script says it.
pub(crate) enum Placed {
    Waits {
        ahead: Option<u32>,
        poll_after: Duration,
    },
    Granted(TokenRange),
    Ended,
    TooLate,
    IsReadWrite,
    /// It holds something that is in somebody else's use.
    IsNoLock,
    /// The counter stands so high that no further token can be counted exactly.
    UsedUp,
}

/// A number, however it was sent.
pub(crate) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// A text, as far as it is one.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(crate) fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// So many numbers of which an answer consists.
pub(crate) fn numbers<const COUNT: usize>(value: &Value) -> Option<[i64; COUNT]> {
    let mut written = text(value)?.split(' ');
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = written.next()?.parse().ok()?;
    }
    written.next().is_none().then_some(numbers)
}

/// What the first three numbers say of a claim.
pub(crate) fn placed(code: i64, first: i64, second: i64) -> Option<Placed> {
    Some(match code {
        0 => Placed::Waits {
            // It is -1 where nothing is known.
            ahead: u32::try_from(second).ok(),
            poll_after: Duration::from_millis(u64::try_from(first).ok()?),
        },
        1 => Placed::Granted(run(u64::try_from(first).ok()?, u64::try_from(second).ok()?)?),
        2 => Placed::Ended,
        3 => Placed::TooLate,
        4 => Placed::IsReadWrite,
        5 => Placed::UsedUp,
        6 => Placed::IsNoLock,
        _ => return None,
    })
}

/// The tokens of a grant.
pub(crate) fn run(first: u64, count: u64) -> Option<TokenRange> {
    let count = u32::try_from(count).ok().and_then(NonZeroU32::new)?;
    TokenRange::new(FencingToken::new(first)?, count)
}

/// The record of a claim that was granted and renewed, as [`granted`] reads it.
pub(crate) fn record_of(run: TokenRange, label: &str) -> String {
    format!("G:{}:{}:{label}", run.first(), run.count())
}

/// What stands in the record of a claim that was granted: its run and its label.
pub(crate) fn granted(record: &str) -> Option<(TokenRange, &str)> {
    let mut parts = record.strip_prefix("G:")?.splitn(3, ':');
    let first = parts.next()?.parse().ok()?;
    let count = parts.next()?.parse().ok()?;
    Some((run(first, count)?, parts.next()?))
}

/// What stands in the record of a claim that waits: its label.
pub(crate) fn waits(record: &str) -> Option<&str> {
    record.strip_prefix("W:")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const COUNT: usize>(text: &str) -> Option<[i64; COUNT]> {
        numbers(&Value::BulkString(text.as_bytes().to_vec()))
    }

    #[test]
    fn numbers_are_read_all_or_not_at_all() {
        assert_eq!(
            read("1 1795311524581932 8 -1"),
            Some([1, 1_795_311_524_581_932, 8, -1])
        );
        assert_eq!(read::<2>("1"), None, "one is missing");
        assert_eq!(read::<2>("1 2 3"), None, "one too many");
        for odd in ["", "1 ", "1  2", "1 x", "1 2.5", "1 1e+15", "nan inf"] {
            assert_eq!(read::<2>(odd), None, "{odd:?}");
        }
        assert_eq!(
            numbers::<1>(&Value::Array(vec![Value::Int(1)])),
            None,
            "a list is none"
        );
    }
}
