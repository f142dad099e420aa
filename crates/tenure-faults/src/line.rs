//! The lines of a log: the events of a history as their text, and notes of this crate's own in JSON.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::Instant;
use tenure_testkit::Event;

/// One line of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Event(Event),
    Note(Note),
}

/// Something that is worth knowing beside a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note {
    #[serde(with = "nanos")]
    pub(crate) at: Instant,
    /// Any of its own, if it is about the whole process.
    pub(crate) attempt: u64,
    pub(crate) what: Noted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Noted {
    /// When the holder's belief will end unless a renewal comes, and how long the store keeps the lock.
    Deadline {
        #[serde(with = "nanos")]
        until: Instant,
        lease: Duration,
    },
    /// The unfenced counter is about to be read.
    Bumping,
    /// It was written.
    Bumped,
    /// The fenced register refused a write.
    Refused,
    /// An owner took its lock once more.
    Nested,
    /// The process stood still since then.
    Stalled {
        #[serde(with = "nanos")]
        since: Instant,
    },
}

/// Moments as nanoseconds.
mod nanos {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tenure::Instant;

    pub(super) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
        at.as_nanos().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Instant, D::Error> {
        u64::deserialize(from).map(Instant::from_nanos)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Event(event) => event.fmt(f),
            Line::Note(note) => f.write_str(&serde_json::to_string(note).map_err(|_| fmt::Error)?),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let event = line.parse().map(Line::Event);
        event
            .or_else(|_| serde_json::from_str(line).map(Line::Note))
            .map_err(|_| format!("not a line of a log: {line:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_back_as_it_was_written() {
        for line in [
            "1000 7 invoked owner=3 mode=exclusive key=plain-0",
            r#"{"at":1000,"attempt":7,"what":{"deadline":{"until":31500,"lease":{"secs":2,"nanos":0}}}}"#,
            r#"{"at":1000,"attempt":7,"what":"bumping"}"#,
            r#"{"at":1000,"attempt":0,"what":{"stalled":{"since":900}}}"#,
        ] {
            assert_eq!(line.parse::<Line>().unwrap().to_string(), line);
        }
        for line in ["", "1000 7", "{}", r#"{"at":1000,"attempt":7,"what":"dead"}"#] {
            assert!(line.parse::<Line>().is_err(), "{line}");
        }
    }
}
