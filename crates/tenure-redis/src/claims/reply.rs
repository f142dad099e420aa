//! Decodes the replies of the scripts.

use std::num::NonZeroU32;

use redis::Value;
use tenure_backend::{FencingToken, Kind, Mode, TokenRange};

/// Decodes an unsigned integer, sent as a number or as text.
pub(crate) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// Decodes a text; `None` if the value is no text in UTF-8.
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

/// Decodes a text of `COUNT` integers, separated by single blanks. `None` for any other value.
pub(crate) fn numbers<const COUNT: usize>(value: &Value) -> Option<[i64; COUNT]> {
    let mut words = text(value)?.split(' ');
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

/// Decodes a kind of lock: 0 is a mutex, -1 a read-write lock, a positive number the size of a semaphore.
pub(crate) fn kind(code: i64) -> Option<Kind> {
    Some(match code {
        0 => Kind::Mutex,
        -1 => Kind::ReadWrite,
        of => Kind::Semaphore {
            of: NonZeroU32::new(u32::try_from(of).ok()?)?,
        },
    })
}

/// The tokens of a grant: `count` numbers from `first` on, if these are valid.
pub(crate) fn token_range(first: u64, count: u64) -> Option<TokenRange> {
    let count = u32::try_from(count).ok().and_then(NonZeroU32::new)?;
    TokenRange::new(FencingToken::new(first)?, count)
}

/// The tokens and the label in the record of a granted claim; `None` for any other record.
pub(crate) fn parse_granted_record(record: &str) -> Option<(TokenRange, &str)> {
    let mut parts = record.strip_prefix("G:")?.splitn(3, ':');
    let first = parts.next()?.parse().ok()?;
    let count = parts.next()?.parse().ok()?;
    Some((token_range(first, count)?, parts.next()?))
}

/// The mode and the label in the record of a waiting claim; `None` for any other record.
pub(crate) fn parse_waiting_record(record: &str) -> Option<(Mode, &str)> {
    let (mode, label) = record.strip_prefix('W')?.split_once(':')?;
    Some((parse_mode(mode)?, label))
}

/// Decodes a claim's mode as scripts know it, see `mode_code` in `arguments.rs`.
pub(crate) fn parse_mode(code: &str) -> Option<Mode> {
    Some(match code {
        "" => Mode::Exclusive,
        "R" => Mode::Read,
        "W" => Mode::Write,
        permits => {
            let (take, of) = permits.split_once('/')?;
            Mode::Permits {
                take: take.parse().ok()?,
                of: of.parse().ok()?,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const COUNT: usize>(text: &str) -> Option<[i64; COUNT]> {
        numbers(&Value::BulkString(text.as_bytes().to_vec()))
    }

    #[test]
    fn kinds_and_modes_are_decoded() {
        assert_eq!([kind(0), kind(-1)], [Some(Kind::Mutex), Some(Kind::ReadWrite)]);
        let of = NonZeroU32::new(3).unwrap();
        assert_eq!(kind(3), Some(Kind::Semaphore { of }));
        assert_eq!([kind(-2), kind(i64::MAX)], [None, None]);
        let waiting = |record| parse_waiting_record(record);
        assert_eq!(waiting("W:a:b"), Some((Mode::Exclusive, "a:b")));
        assert_eq!(waiting("WR:"), Some((Mode::Read, "")));
        assert_eq!(waiting("WW:x"), Some((Mode::Write, "x")));
        assert_eq!(waiting("W3/3:x"), Some((Mode::Permits { take: of, of }, "x")));
        assert_eq!(
            [waiting("E"), waiting("G:1:1:x"), waiting("WX:")],
            [None, None, None]
        );
    }

    #[test]
    fn numbers_are_parsed_all_or_none() {
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
