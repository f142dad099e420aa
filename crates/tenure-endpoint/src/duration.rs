//! Parses lengths of time such as `500ms`, `5s`, `2m` and `1h30m`.

use std::time::Duration;

/// The reason why a text is not a length of time. The message says what to write instead.
///
/// # Examples
/// ```
/// use tenure_endpoint::{InvalidDuration, parse_duration};
///
/// assert_eq!(parse_duration("30"), Err(InvalidDuration::NoUnit { number: "30".into() }));
/// assert_eq!(parse_duration("30m1h"), Err(InvalidDuration::Order));
/// assert_eq!(parse_duration("1.5s"), Err(InvalidDuration::Syntax), "write `1500ms`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDuration {
    /// The text is empty.
    #[error("it is empty: write one such as `500ms`, `5s`, `2m` or `1h30m`")]
    Empty,
    /// A number has no unit.
    #[error("`{number}` has no unit: write `{number}s` for seconds, or `ms`, `m`, `h`")]
    NoUnit {
        /// The digits of the number.
        number: String,
    },
    /// The text is not a sequence of whole numbers with units.
    #[error("write whole numbers with the units `h`, `m`, `s`, `ms`, such as `1h30m` or `1500ms`")]
    Syntax,
    /// A unit appears twice or after a smaller one.
    #[error("write each unit once, the largest first, such as `1h30m`")]
    Order,
    /// The length of time is 100 years or more.
    #[error("it is too long: write less than {MAX_HOURS} hours")]
    TooLong,
}

/// A hundred years, in hours. This length of time and longer ones are refused: no lease needs them, and the sum of
/// several shorter ones still fits a clock.
const MAX_HOURS: u64 = 24 * 365 * 100;

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a length of time: whole numbers, each with one of the units `h`, `m`, `s`, `ms`, the largest unit first.
///
/// A number without a unit is refused, even `0`, because it could mean seconds or milliseconds.
///
/// # Errors
///
/// [`InvalidDuration`] says what to write instead.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_endpoint::parse_duration;
///
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert_eq!(
///     parse_duration("30").unwrap_err().to_string(),
///     "`30` has no unit: write `30s` for seconds, or `ms`, `m`, `h`",
/// );
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    if text.is_empty() {
        return Err(InvalidDuration::Empty);
    }
    let mut rest = text;
    let mut allowed = &UNITS[..];
    let mut total_ms = 0u64;
    while !rest.is_empty() {
        let (number, after_number) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after_unit) = split_where(after_number, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(InvalidDuration::Syntax);
        }
        if unit.is_empty() {
            return Err(InvalidDuration::NoUnit {
                number: number.to_owned(),
            });
        }
        let Some(at) = allowed.iter().position(|(name, _)| *name == unit) else {
            let known = UNITS.iter().any(|(name, _)| *name == unit);
            return Err(if known {
                InvalidDuration::Order
            } else {
                InvalidDuration::Syntax
            });
        };
        let added_ms = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(allowed[at].1));
        total_ms = added_ms
            .and_then(|added_ms| total_ms.checked_add(added_ms))
            .ok_or(InvalidDuration::TooLong)?;
        allowed = &allowed[at + 1..];
        rest = after_unit;
    }
    if total_ms >= MAX_HOURS * UNITS[0].1 {
        return Err(InvalidDuration::TooLong);
    }
    Ok(Duration::from_millis(total_ms))
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_the_sum_of_its_units() {
        let table = [
            ("0s", 0),
            ("500ms", 500),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1h1m1s1ms", 3_661_001),
            ("1m1ms", 60_001),
            ("007s", 7_000),
            ("90m", 5_400_000),
        ];
        for (text, want_ms) in table {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(want_ms)), "{text}");
        }
    }

    #[test]
    fn a_duration_without_its_unit_is_refused_with_a_hint() {
        for (text, number) in [("5", "5"), ("0", "0"), ("1h30", "30")] {
            let number = number.to_owned();
            assert_eq!(
                parse_duration(text),
                Err(InvalidDuration::NoUnit { number }),
                "{text}"
            );
        }
    }

    #[test]
    fn other_text_is_refused_as_a_duration() {
        let syntax = [
            " 5s", "5s ", "5 s", "-5s", "+5s", "1.5s", "5S", "5sec", "5d", "s", "ms", "٥s", "5µs", "\0",
        ];
        for text in syntax {
            assert_eq!(parse_duration(text), Err(InvalidDuration::Syntax), "{text:?}");
        }
        for text in ["30m1h", "1s1s", "5ms1s"] {
            assert_eq!(parse_duration(text), Err(InvalidDuration::Order), "{text:?}");
        }
        let many = "9".repeat(1_000_000) + "s";
        for text in [
            "18446744073709551616ms",
            "18446744073709551615s",
            "876000h",
            &many,
        ] {
            assert_eq!(
                parse_duration(text),
                Err(InvalidDuration::TooLong),
                "{}",
                &text[..5]
            );
        }
        assert_eq!(parse_duration(""), Err(InvalidDuration::Empty));
    }
}
