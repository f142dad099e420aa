//! The events of `tenure hold`: one JSON object per line, with fields that programs rely on.

use std::io::{self, Write};

use serde::Serialize;

/// The version of the protocol. Fields may be added to an event without another version.
const VERSION: u8 = 1;

/// An event of `tenure hold`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The lock was not granted at once. Printed at most once.
    Waiting {
        /// The key that the claim waits for.
        key: String,
        /// The claim that waits.
        claim: String,
    },
    /// The lock is held.
    Acquired(Acquired),
    /// A renewal was confirmed.
    Renewed {
        /// Time until the local deadline, counted from before the renewal was sent.
        valid_ms: u64,
    },
    /// The lock was lost; exit 4.
    Lost {
        /// The cause, as [`LostCause::as_str`](tenure::LostCause::as_str) names it.
        cause: &'static str,
    },
    /// The lock was released; exit 0.
    Released,
    /// Another client holds the lock and `--no-wait` was given; exit 1.
    Busy {
        /// The label of a holder. `None` if the store does not show it.
        holder: Option<String>,
    },
    /// The lock was busy for all of `--wait`; exit 1.
    Timeout {
        /// The label of a holder. `None` if the store does not show it.
        holder: Option<String>,
    },
    /// Stdin ended, or INT, TERM, HUP or QUIT came, while `hold` waited; exit 1.
    Cancelled,
    /// `tenure` or the store failed; exit 3.
    Error {
        /// The failure, its cause, and help.
        message: String,
    },
}

/// The fields of the event `acquired`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Acquired {
    #[serde(flatten)]
    what: What,
    mode: &'static str,
    /// The fencing token of one key: null if the store has no tokens. The field is absent for several keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Option<u64>>,
    lease_ms: Option<u64>,
    valid_ms: u64,
    waited_ms: u64,
    store: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum What {
    One { key: String, claim: String },
    Several { members: Vec<Member> },
}

/// One key of the lock, with its claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// The key.
    pub key: String,
    /// This client's claim on the key.
    pub claim: String,
    /// The fencing token. `None` if the store has none.
    pub token: Option<u64>,
}

impl Acquired {
    /// Creates the fields from one member or several. `lease_ms` is `None` if the store has no leases.
    pub fn new(
        mut members: Vec<Member>,
        mode: &'static str,
        lease_ms: Option<u64>,
        valid_ms: u64,
        waited_ms: u64,
        store: String,
    ) -> Acquired {
        let (what, token) = match members.pop() {
            Some(Member { key, claim, token }) if members.is_empty() => {
                (What::One { key, claim }, Some(token))
            }
            last => {
                members.extend(last);
                (What::Several { members }, None)
            }
        };
        Acquired {
            what,
            mode,
            token,
            lease_ms,
            valid_ms,
            waited_ms,
            store,
        }
    }
}

/// Writes events as lines. The first line has the version of the protocol.
#[derive(Debug)]
pub struct EventWriter<W> {
    out: W,
    has_written: bool,
}

impl<W: Write> EventWriter<W> {
    /// Creates a writer of events that has written none.
    pub fn new(out: W) -> Self {
        EventWriter {
            out,
            has_written: false,
        }
    }

    /// Writes the event as a line, and flushes it.
    ///
    /// # Errors
    /// Any error of the output, for example a pipe without a reader.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        if !std::mem::replace(&mut self.has_written, true) {
            // An event is an object whose first field is its name.
            let end_of_name = line.find([',', '}']).unwrap_or(line.len());
            line.insert_str(end_of_name, &format!(r#","v":{VERSION}"#));
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use tenure::LostCause;

    use super::*;

    /// Returns the line of an event that is not the first.
    fn text(event: Event) -> String {
        let mut out = EventWriter::new(Vec::new());
        out.write(&Event::Released).expect("a vector takes all");
        out.out.clear();
        out.write(&event).expect("a vector takes all");
        String::from_utf8(out.out).expect("JSON is text")
    }

    #[test]
    fn the_first_event_has_the_version_after_its_name() {
        let holder = Some("a,b".to_owned());
        for (event, line) in [
            (Event::Cancelled, r#"{"event":"cancelled","v":1}"#),
            (Event::Busy { holder }, r#"{"event":"busy","v":1,"holder":"a,b"}"#),
        ] {
            let mut out = EventWriter::new(Vec::new());
            out.write(&event).expect("a vector takes all");
            out.write(&Event::Released).expect("a vector takes all");
            let text = String::from_utf8(out.out).expect("JSON is text");
            assert_eq!(text, format!("{line}\n{{\"event\":\"released\"}}\n"));
        }
    }

    fn member(key: &str, token: Option<u64>) -> Member {
        Member {
            key: key.into(),
            claim: format!("c-{key}"),
            token,
        }
    }

    #[test]
    fn every_event_has_its_documented_fields_in_order() {
        let acquired = |members, mode, lease_ms, store: &str| {
            Event::Acquired(Acquired::new(members, mode, lease_ms, 900, 12, store.into()))
        };
        let one = vec![member("k", Some(7))];
        let several = vec![member("a", Some(1)), member("b", None)];
        let (key, claim, message) = ("k\"".to_owned(), "c".to_owned(), "why".to_owned());
        for (event, line) in [
            (
                Event::Waiting { key, claim },
                r#"{"event":"waiting","key":"k\"","claim":"c"}"#,
            ),
            (
                acquired(one, "exclusive", Some(30_000), "redis"),
                r#"{"event":"acquired","key":"k","claim":"c-k","mode":"exclusive","token":7,"lease_ms":30000,"valid_ms":900,"waited_ms":12,"store":"redis"}"#,
            ),
            // A store without tokens and leases shows null for both.
            (
                acquired(vec![member("k", None)], "read", None, "zookeeper"),
                r#"{"event":"acquired","key":"k","claim":"c-k","mode":"read","token":null,"lease_ms":null,"valid_ms":900,"waited_ms":12,"store":"zookeeper"}"#,
            ),
            // A multi-lock has `members` instead of `key`, `claim` and `token`.
            (
                acquired(several, "write", Some(1), "sqlite"),
                r#"{"event":"acquired","members":[{"key":"a","claim":"c-a","token":1},{"key":"b","claim":"c-b","token":null}],"mode":"write","lease_ms":1,"valid_ms":900,"waited_ms":12,"store":"sqlite"}"#,
            ),
            (
                Event::Lost { cause: "max_hold" },
                r#"{"event":"lost","cause":"max_hold"}"#,
            ),
            (Event::Released, r#"{"event":"released"}"#),
            (
                Event::Renewed { valid_ms: 29_690 },
                r#"{"event":"renewed","valid_ms":29690}"#,
            ),
            (Event::Busy { holder: None }, r#"{"event":"busy","holder":null}"#),
            (
                Event::Timeout {
                    holder: Some("ann".into()),
                },
                r#"{"event":"timeout","holder":"ann"}"#,
            ),
            (Event::Cancelled, r#"{"event":"cancelled"}"#),
            (Event::Error { message }, r#"{"event":"error","message":"why"}"#),
        ] {
            assert_eq!(text(event), format!("{line}\n"));
        }
    }

    /// `tests/command/objects.rs` checks that the help lists all events and fields. It runs the binary, which cannot
    /// produce every cause of a loss, so this test checks the causes.
    #[test]
    fn every_cause_of_a_loss_is_in_the_help() {
        let command = crate::args::Cli::command();
        let hold = command.find_subcommand("hold").expect("it is a verb");
        let help = hold.get_after_long_help().expect("it has one").to_string();
        for cause in [
            LostCause::Expired,
            LostCause::Evicted { by: None },
            LostCause::Session,
            LostCause::Missing,
            LostCause::Unreachable,
            LostCause::MaxHold,
        ] {
            let word = cause.as_str();
            assert!(help.contains(word), "{word} is missing in\n{help}");
        }
    }
}
