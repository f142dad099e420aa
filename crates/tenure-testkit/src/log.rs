//! Text form of a history, one line per event as documented at [`Event`]: parser and `Display`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use tenure_backend::{FencingToken, Instant, LockKey, Mode};

use crate::history::{Event, EventKind};

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at.as_nanos(), self.attempt)?;
        match &self.kind {
            EventKind::Invoked { key, owner, mode } => {
                let mode = match mode {
                    Mode::Permits { take, of } => format!("permits:{take}/{of}"),
                    other => other.to_string(),
                };
                write!(f, "invoked owner={owner} mode={mode} key={key}")
            }
            EventKind::Queued => f.write_str("queued"),
            EventKind::Acquired { token, until } => {
                let token = token.map_or("-".to_owned(), |token| token.to_string());
                write!(f, "acquired token={token} until={}", until.as_nanos())
            }
            EventKind::Failed => f.write_str("failed"),
            EventKind::Unknown => f.write_str("unknown"),
            EventKind::ReleaseInvoked => f.write_str("release"),
            EventKind::Released => f.write_str("released"),
            EventKind::DowngradeInvoked => f.write_str("downgrade"),
            EventKind::Lost => f.write_str("lost"),
            EventKind::Sampled { since, held } => write!(f, "sampled since={} held={held}", since.as_nanos()),
            EventKind::Accepted { token } => write!(f, "accepted token={token}"),
            EventKind::Seen { holders, waiters } => write!(f, "seen holders={holders} waiters={waiters}"),
        }
    }
}

/// Error of parsing a line that is not an event of a history.
///
/// # Examples
/// ```
/// use tenure_testkit::Event;
///
/// // The parser is strict about order and spaces, so that a damaged log is not checked.
/// let refused = "1700  7 release".parse::<Event>().unwrap_err();
/// assert_eq!(refused.to_string(), r#"not an event of a history: "1700  7 release""#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseEventError {
    line: String,
}

impl fmt::Display for ParseEventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an event of a history: {:?}", self.line)
    }
}

impl std::error::Error for ParseEventError {}

impl FromStr for Event {
    type Err = ParseEventError;

    fn from_str(line: &str) -> Result<Self, ParseEventError> {
        read(line).ok_or_else(|| ParseEventError {
            line: line.to_owned(),
        })
    }
}

fn read(line: &str) -> Option<Event> {
    let mut rest = line;
    let at = instant(word(&mut rest))?;
    let attempt = word(&mut rest).parse().ok()?;
    let kind = match word(&mut rest) {
        "invoked" => EventKind::Invoked {
            owner: field(&mut rest, "owner=")?.parse().ok()?,
            mode: mode(field(&mut rest, "mode=")?)?,
            key: LockKey::new(std::mem::take(&mut rest).strip_prefix("key=")?).ok()?,
        },
        "queued" => EventKind::Queued,
        "acquired" => EventKind::Acquired {
            token: match field(&mut rest, "token=")? {
                "-" => None,
                number => Some(token(number)?),
            },
            until: instant(field(&mut rest, "until=")?)?,
        },
        "failed" => EventKind::Failed,
        "unknown" => EventKind::Unknown,
        "release" => EventKind::ReleaseInvoked,
        "released" => EventKind::Released,
        "downgrade" => EventKind::DowngradeInvoked,
        "lost" => EventKind::Lost,
        "sampled" => EventKind::Sampled {
            since: instant(field(&mut rest, "since=")?)?,
            held: field(&mut rest, "held=")?.parse().ok()?,
        },
        "accepted" => EventKind::Accepted {
            token: token(field(&mut rest, "token=")?)?,
        },
        "seen" => EventKind::Seen {
            holders: field(&mut rest, "holders=")?.parse().ok()?,
            waiters: field(&mut rest, "waiters=")?.parse().ok()?,
        },
        _ => return None,
    };
    rest.is_empty().then_some(Event { at, attempt, kind })
}

/// Removes the text up to the next space from `rest` and returns it.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
    *rest = after;
    word
}

fn field<'a>(rest: &mut &'a str, name: &str) -> Option<&'a str> {
    word(rest).strip_prefix(name)
}

fn instant(nanos: &str) -> Option<Instant> {
    nanos.parse().ok().map(Instant::from_nanos)
}

fn token(number: &str) -> Option<FencingToken> {
    FencingToken::new(number.parse().ok()?)
}

fn mode(text: &str) -> Option<Mode> {
    match text {
        "exclusive" => Some(Mode::Exclusive),
        "read" => Some(Mode::Read),
        "write" => Some(Mode::Write),
        _ => {
            let (take, of) = text.strip_prefix("permits:")?.split_once('/')?;
            Some(Mode::Permits {
                take: take.parse::<NonZeroU32>().ok()?,
                of: of.parse::<NonZeroU32>().ok()?,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_parse_back_from_their_text() {
        for line in [
            "1000 7 invoked owner=3 mode=exclusive key=order:42",
            "1000 7 invoked owner=3 mode=read key=a key with spaces ",
            "1000 7 invoked owner=3 mode=write key=mode=read key=x",
            "1000 7 invoked owner=3 mode=permits:2/5 key=k",
            "1200 7 queued",
            "1500 7 acquired token=17 until=31500",
            "1500 7 acquired token=- until=31500",
            "1600 7 sampled since=1590 held=true",
            "1650 7 accepted token=17",
            "1700 7 release",
            "1800 7 released",
            "1800 7 failed",
            "1800 7 unknown",
            "1800 7 lost",
            "1900 7 seen holders=0 waiters=2",
        ] {
            let event: Event = line.parse().unwrap();
            assert_eq!(event.to_string(), line);
        }
    }

    #[test]
    fn invalid_event_lines_are_rejected() {
        for line in [
            "",
            "1000",
            "1000 7",
            "1000 7 stolen",
            "-1 7 queued",
            "1000 7 queued twice",
            "1000 7 acquired token=0 until=5",
            "1000 7 acquired token=5",
            "1000 7 invoked owner=3 mode=permits:0/5 key=k",
            "1000 7 invoked owner=3 mode=read key=",
        ] {
            assert!(line.parse::<Event>().is_err(), "{line}");
        }
    }
}
