//! The events of `tenure hold`: one JSON object per line, with fields that programs rely on.

use std::io::{self, Write};

use serde::Serialize;

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
    /// The lock was lost; exit 4.
    Lost {
        /// The cause, as [`LostCause::as_str`](tenure::LostCause::as_str) names it.
        cause: &'static str,
    },
    /// The lock was released; exit 0.
    Released,
    /// Another client holds the lock and `--no-wait` was given; exit 1.
    Busy,
    /// The lock was busy for all of `--wait`; exit 1.
    Timeout,
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
            waited_ms,
            store,
        }
    }
}

impl Event {
    /// Writes the event as a line, and flushes it.
    ///
    /// # Errors
    /// Any error of `out`, for example a pipe without a reader.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use tenure::LostCause;

    use super::*;

    fn text(event: Event) -> String {
        let mut out = Vec::new();
        event.write(&mut out).expect("a vector takes all");
        String::from_utf8(out).expect("JSON is text")
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
            Event::Acquired(Acquired::new(members, mode, lease_ms, 12, store.into()))
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
                r#"{"event":"acquired","key":"k","claim":"c-k","mode":"exclusive","token":7,"lease_ms":30000,"waited_ms":12,"store":"redis"}"#,
            ),
            // A store without tokens and leases shows null for both.
            (
                acquired(vec![member("k", None)], "read", None, "zookeeper"),
                r#"{"event":"acquired","key":"k","claim":"c-k","mode":"read","token":null,"lease_ms":null,"waited_ms":12,"store":"zookeeper"}"#,
            ),
            // A multi-lock has `members` instead of `key`, `claim` and `token`.
            (
                acquired(several, "write", Some(1), "sqlite"),
                r#"{"event":"acquired","members":[{"key":"a","claim":"c-a","token":1},{"key":"b","claim":"c-b","token":null}],"mode":"write","lease_ms":1,"waited_ms":12,"store":"sqlite"}"#,
            ),
            (
                Event::Lost { cause: "max_hold" },
                r#"{"event":"lost","cause":"max_hold"}"#,
            ),
            (Event::Released, r#"{"event":"released"}"#),
            (Event::Busy, r#"{"event":"busy"}"#),
            (Event::Timeout, r#"{"event":"timeout"}"#),
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
