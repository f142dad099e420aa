//! Durations as people write them: `500ms`, `5s`, `2m`, `1h30m`.
//! Which durations an option takes is the option's.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The longest duration: a hundred years. Deadlines beyond it would not fit into clocks.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Units from the largest down, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is no duration, in words that follow "invalid value '…' for '…': ".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadDuration {
    /// A number alone.
    NoUnit(String),
    /// A sign before the number.
    Negative,
    /// Anything else.
    Malformed,
    /// More than a hundred years.
    TooLong,
}

impl fmt::Display for BadDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadDuration::NoUnit(number) => {
                write!(
                    f,
                    "the number has no unit; for seconds write `{number}s`, for milliseconds `{number}ms`"
                )
            }
            BadDuration::Negative => f.write_str("a duration cannot be negative"),
            BadDuration::Malformed => f.write_str(
                "not a duration; write whole numbers with units h, m, s or ms: `1h30m`, `5s`, `500ms`",
            ),
            BadDuration::TooLong => f.write_str("longer than a hundred years"),
        }
    }
}

impl Error for BadDuration {}

/// Reads a duration: whole numbers with units, the larger unit first, each unit once.
///
/// # Errors
/// Each says what to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if text.starts_with('-') {
        return Err(BadDuration::Negative);
    }
    if digits(text) {
        return Err(BadDuration::NoUnit(text.to_owned()));
    }
    let (mut rest, mut units, mut total_ms) = (text, UNITS.as_slice(), 0_u64);
    while !rest.is_empty() || total_ms == 0 && units.len() == UNITS.len() {
        let (number, after) = split(rest, |b| b.is_ascii_digit());
        let (unit, after) = split(after, |b| b.is_ascii_alphabetic());
        let at = units
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or(BadDuration::Malformed)?;
        if !digits(number) {
            return Err(BadDuration::Malformed);
        }
        let count: u64 = number.parse().map_err(|_| BadDuration::TooLong)?;
        let span_ms = count.checked_mul(units[at].1).ok_or(BadDuration::TooLong)?;
        total_ms = total_ms.checked_add(span_ms).ok_or(BadDuration::TooLong)?;
        (rest, units) = (after, &units[at + 1..]);
    }
    let total = Duration::from_millis(total_ms);
    if total > LONGEST {
        Err(BadDuration::TooLong)
    } else {
        Ok(total)
    }
}

fn split(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !belongs(b)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        let ms = |text| parse_duration(text).map(|span| span.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("5s"), Ok(5_000));
        assert_eq!(ms("2m"), Ok(120_000));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms("1h2m3s4ms"), Ok(3_723_004));
        assert_eq!(ms("0s"), Ok(0));
        assert_eq!(ms("0s5ms"), Ok(5));
        assert_eq!(ms("90m"), Ok(5_400_000));
    }

    #[test]
    fn a_bare_number_is_refused_with_a_hint() {
        let error = parse_duration("5").expect_err("no unit");
        assert!(error.to_string().contains("`5s`"), "{error}");
        assert!(parse_duration("0").is_err());
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        assert_eq!(parse_duration("-1s"), Err(BadDuration::Negative));
        for text in [
            "", "s", "5 s", "5x", "1m1h", "1s1s", "1.5s", "+5s", "5sms", "5S", "٥s", "1h ", "5s-", "é",
        ] {
            assert_eq!(parse_duration(text), Err(BadDuration::Malformed), "{text:?}");
        }
    }

    #[test]
    fn what_no_clock_can_hold_is_refused() {
        for text in [
            "876001h",
            "99999999999999999999s",
            "18446744073709551615h",
            "5124095576030h18446744073709551615ms",
        ] {
            assert_eq!(parse_duration(text), Err(BadDuration::TooLong), "{text}");
        }
        assert!(parse_duration("876000h").is_ok());
    }
}
