//! What `watch` prints: an object for programs, a line for people.

use serde::Serialize;
use tenure::backend::escape_control;

use super::status::KeyStatus;
use super::table::cells;

/// A change, with fields that programs rely on: `change`, and those of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Seen {
    /// Somebody holds a key that nobody held.
    Held(KeyStatus),
    /// Nobody holds it any more.
    Freed(KeyStatus),
    /// Others hold it.
    Holders(KeyStatus),
    /// Others stand in its queue.
    Waiters(KeyStatus),
    /// The store stopped answering; the watch goes on.
    Unavailable {
        /// Why.
        message: String,
    },
    /// The store answers again.
    Available,
}

/// The line for people.
pub fn change(seen: &Seen) -> String {
    let (word, status) = match seen {
        Seen::Held(status) => ("held", status),
        Seen::Freed(status) => ("freed", status),
        Seen::Holders(status) => ("holders", status),
        Seen::Waiters(status) => ("waiters", status),
        Seen::Unavailable { message } => {
            return format!("unavailable  {}\n", escape_control(&message.replace('\n', " ")));
        }
        Seen::Available => return "available    the store answers again\n".to_owned(),
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
    if !waiters.is_empty() || matches!(seen, Seen::Waiters(_)) {
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
                Seen::Held(steering),
                "held         k  by ann\\u{1b}@host:1 (exclusive, token 7)  1 in the queue: (foreign)\n",
            ),
            (Seen::Freed(free.clone()), "freed        k\n"),
            (Seen::Waiters(free), "waiters      k  0 in the queue\n"),
            (
                Seen::Unavailable {
                    message: "a\nb".into(),
                },
                "unavailable  a b\n",
            ),
            (Seen::Available, "available    the store answers again\n"),
        ] {
            assert_eq!(change(&seen), line);
        }
    }

    #[test]
    fn an_object_is_the_keys_with_its_change() {
        let json = |seen: &Seen| serde_json::to_string(seen).expect("it is JSON");
        let key = serde_json::to_string(&sample()).expect("it is JSON");
        assert_eq!(
            json(&Seen::Held(sample())),
            key.replacen('{', "{\"change\":\"held\",", 1)
        );
        assert_eq!(json(&Seen::Available), "{\"change\":\"available\"}");
        let message = "why".to_owned();
        assert_eq!(
            json(&Seen::Unavailable { message }),
            "{\"change\":\"unavailable\",\"message\":\"why\"}"
        );
    }
}
