//! Parses the durations of options as the library does, but reports negative ones with a separate message.

use std::time::Duration;

/// Parses a duration: `500ms`, `5s`, `2m`, `1h30m`.
///
/// # Errors
/// A text that says what is wrong, and in most cases what to write instead. The parser prints this text after
/// "invalid value '…' for '…': ".
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let is_negative = text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if is_negative {
        return Err("a duration cannot be negative".to_owned());
    }
    tenure::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_duration_has_its_own_message() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
        for (text, words) in [
            ("-1s", "negative"),
            ("-5", "negative"),
            ("5", "`5s`"),
            ("-n", "whole numbers"),
            ("--", "whole numbers"),
        ] {
            let refusal = parse_duration(text).expect_err(text);
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }
}
