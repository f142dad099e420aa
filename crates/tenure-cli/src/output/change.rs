//! Formats the changes of `watch`: as an object for programs, as a line for people.

use std::time::SystemTime;

use serde::Serialize;
use tenure::backend::escape_control;

use super::status::KeyStatus;
use super::table::cells;

/// A change as programs read it: the field `change`, and the fields of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum ChangeEvent {
    /// A key that was free is held.
    Held(KeyStatus),
    /// The key is free again.
    Freed(KeyStatus),
    /// The set of holders has changed.
    Holders(KeyStatus),
    /// The queue of waiters has changed.
    Waiters(KeyStatus),
    /// The store stopped answering. The watch goes on.
    Unavailable {
        /// The error message.
        message: String,
    },
    /// The store answers again.
    Available,
}

/// A change, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimedChange {
    /// The time in UTC, as in `2026-11-26T13:37:04Z`.
    time: String,
    #[serde(flatten)]
    change: ChangeEvent,
}

impl TimedChange {
    /// Adds the time to a change.
    pub fn at(time: SystemTime, change: ChangeEvent) -> TimedChange {
        TimedChange {
            time: humantime::format_rfc3339_seconds(time).to_string(),
            change,
        }
    }
}

/// Formats a change as a line for people.
pub fn change(TimedChange { time, change }: &TimedChange) -> String {
    format!("{time}  {}", words(change))
}

fn words(seen: &ChangeEvent) -> String {
    let (word, status) = match seen {
        ChangeEvent::Held(status) => ("held", status),
        ChangeEvent::Freed(status) => ("freed", status),
        ChangeEvent::Holders(status) => ("holders", status),
        ChangeEvent::Waiters(status) => ("waiters", status),
        ChangeEvent::Unavailable { message } => {
            return format!("unavailable  {}\n", escape_control(&message.replace('\n', " ")));
        }
        ChangeEvent::Available => return "available    the store answers again\n".to_owned(),
    };
    let holders: Vec<String> = status
        .holders
        .iter()
        .map(|holder| {
            let [who, mode, token, _] = cells(holder);
            format!("{who} ({mode}, token {token})")
        })
        .collect();
    let mut line = format!("{word:<11}  {}", status.key);
    if !holders.is_empty() {
        line += &format!("  by {}", holders.join(", "));
    }
    let waiters = status.waiters.as_deref().unwrap_or_default();
    if !waiters.is_empty() || matches!(seen, ChangeEvent::Waiters(_)) {
        let names: Vec<String> = waiters.iter().map(|waiter| waiter.who.name()).collect();
        line += &format!("  {} in the queue", names.len());
        if !names.is_empty() {
            line += &format!(": {}", names.join(", "));
        }
    }
    escape_control(&line).into_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::status::sample;
    use super::*;

    #[test]
    fn each_change_is_one_line() {
        let free = KeyStatus {
            holders: vec![],
            waiters: None,
            ..sample()
        };
        let mut steering = sample();
        steering.holders[0].who.label = Some("ann\u{1b}@host:1".into());
        for (seen, line) in [
            (
                ChangeEvent::Held(steering),
                "held         k  by ann\\u{1b}@host:1 (exclusive, token 7)  1 in the queue: (foreign)\n",
            ),
            (ChangeEvent::Freed(free.clone()), "freed        k\n"),
            (ChangeEvent::Waiters(free), "waiters      k  0 in the queue\n"),
            (
                ChangeEvent::Unavailable {
                    message: "a\nb".into(),
                },
                "unavailable  a b\n",
            ),
            (ChangeEvent::Available, "available    the store answers again\n"),
        ] {
            let seen = TimedChange::at(SystemTime::UNIX_EPOCH, seen);
            assert_eq!(change(&seen), format!("1970-01-01T00:00:00Z  {line}"));
        }
    }

    #[test]
    fn a_change_object_has_the_fields_of_the_key() {
        let timed = TimedChange::at(SystemTime::UNIX_EPOCH, ChangeEvent::Available);
        let timed = serde_json::to_string(&timed).expect("it is JSON");
        assert_eq!(timed, r#"{"time":"1970-01-01T00:00:00Z","change":"available"}"#);
        let json = |seen: &ChangeEvent| serde_json::to_string(seen).expect("it is JSON");
        let key = serde_json::to_string(&sample()).expect("it is JSON");
        assert_eq!(
            json(&ChangeEvent::Held(sample())),
            key.replacen('{', "{\"change\":\"held\",", 1)
        );
        assert_eq!(json(&ChangeEvent::Available), "{\"change\":\"available\"}");
        let message = "why".to_owned();
        assert_eq!(
            json(&ChangeEvent::Unavailable { message }),
            "{\"change\":\"unavailable\",\"message\":\"why\"}"
        );
    }
}
