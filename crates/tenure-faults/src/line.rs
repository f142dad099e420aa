//! The lines of a log: the events of a history, and notes of this crate's own beside them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure::{FencingToken, Instant};
use tenure_testkit::Event;

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Event(Event),
    Note(Note),
}

/// Something that is worth knowing beside a history, written as events are: nanoseconds, attempt, verb, fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) at: Instant,
    /// Any of its own, if it is about the whole process.
    pub(crate) attempt: u64,
    pub(crate) what: Noted,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Noted {
    /// When the holder's belief will end unless a renewal comes, and how long the store keeps the lock.
    Deadline { until: Instant, lease: Duration },
    /// The unfenced counter is about to be read.
    Bumping,
    /// It was written.
    Bumped,
    /// The fenced register refused a write with that token.
    Refused { token: FencingToken },
    /// An owner took its lock once more.
    Nested,
    /// The process stood still since then.
    Stalled { since: Instant },
    /// The process has closed its client, and ends.
    Ended,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Event(event) => event.fmt(f),
            Line::Note(note) => note.fmt(f),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at.as_nanos(), self.attempt)?;
        match &self.what {
            Noted::Deadline { until, lease } => {
                write!(f, "deadline {} {}", until.as_nanos(), lease.as_millis())
            }
            Noted::Bumping => f.write_str("bumping"),
            Noted::Bumped => f.write_str("bumped"),
            Noted::Refused { token } => write!(f, "refused {token}"),
            Noted::Nested => f.write_str("nested"),
            Noted::Stalled { since } => write!(f, "stalled {}", since.as_nanos()),
            Noted::Ended => f.write_str("ended"),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        if let Ok(event) = line.parse() {
            return Ok(Line::Event(event));
        }
        let note = read(line).map(Line::Note);
        note.ok_or_else(|| format!("not a line of a log: {line:?}"))
    }
}

fn read(line: &str) -> Option<Note> {
    let words: Vec<&str> = line.split(' ').collect();
    let [at, attempt, verb, fields @ ..] = words.as_slice() else {
        return None;
    };
    let what = match (*verb, fields) {
        ("deadline", [until, lease]) => Noted::Deadline {
            until: instant(until)?,
            lease: Duration::from_millis(lease.parse().ok()?),
        },
        ("bumping", []) => Noted::Bumping,
        ("bumped", []) => Noted::Bumped,
        ("refused", [token]) => Noted::Refused {
            token: FencingToken::new(token.parse().ok()?)?,
        },
        ("nested", []) => Noted::Nested,
        ("stalled", [since]) => Noted::Stalled {
            since: instant(since)?,
        },
        ("ended", []) => Noted::Ended,
        _ => return None,
    };
    Some(Note {
        at: instant(at)?,
        attempt: attempt.parse().ok()?,
        what,
    })
}

fn instant(nanos: &str) -> Option<Instant> {
    nanos.parse().ok().map(Instant::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_back_as_it_was_written() {
        for line in [
            "1000 7 invoked owner=3 mode=exclusive key=plain-0",
            "1000 7 acquired token=17 until=31500",
            "1000 7 deadline 31500 2000",
            "1000 7 bumping",
            "1000 7 bumped",
            "1000 7 refused 17",
            "1000 7 nested",
            "1000 0 stalled 900",
            "1000 0 ended",
        ] {
            assert_eq!(line.parse::<Line>().unwrap().to_string(), line);
        }
        for line in [
            "",
            "1000 7",
            "1000 7 bumped twice",
            "1000 7 refused 0",
            "1000 7 dead",
        ] {
            assert!(line.parse::<Line>().is_err(), "{line}");
        }
    }
}
