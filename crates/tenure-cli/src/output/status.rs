//! The objects of `ls --json` and `show --json`, with fields that programs rely on, in this order: `--help` explains them.

use serde::Serialize;

/// One key with its holders and its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyStatus {
    /// As it was written.
    pub key: String,
    /// `mutex`, `read-write` or `semaphore`; none while nobody holds it or stands in its queue.
    pub kind: Option<&'static str>,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Who stands in the store's queue, in order; none where the store cannot tell.
    pub waiters: Option<Vec<Waiter>>,
}

/// What holders and waiters have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claimant {
    /// What `evict --claim` accepts.
    pub claim: String,
    /// Another kind of client's.
    pub foreign: bool,
    /// Who it says it is.
    pub label: Option<String>,
    /// `exclusive`, `read`, `write` or `permits`.
    pub mode: &'static str,
}

/// A holder of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Who it is.
    #[serde(flatten)]
    pub who: Claimant,
    /// How many permits it has; none unless it is a semaphore's.
    pub permits: Option<u32>,
    /// Its fencing token, or the first of its run.
    pub token: Option<u64>,
    /// Until its lease ends; none where there is no time limit, or the store cannot tell another's.
    pub remaining_ms: Option<u64>,
}

/// A waiter for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiter {
    /// Who it is, and what it waits for.
    #[serde(flatten)]
    pub who: Claimant,
    /// Its place in the queue, from 0; none where there is no order.
    pub position: Option<u32>,
}

/// For tests: a client, or one of another kind, which has no label.
#[cfg(test)]
pub(super) fn claimant(claim: &str, label: Option<&str>, mode: &'static str) -> Claimant {
    Claimant {
        claim: claim.into(),
        foreign: label.is_none(),
        label: label.map(str::to_owned),
        mode,
    }
}

/// For tests: a key with a holder and a foreign waiter.
#[cfg(test)]
pub(super) fn sample() -> KeyStatus {
    KeyStatus {
        key: "k".into(),
        kind: Some("mutex"),
        holders: vec![Holder {
            who: claimant("c", Some("me"), "exclusive"),
            permits: None,
            token: Some(7),
            remaining_ms: Some(100),
        }],
        waiters: Some(vec![Waiter {
            who: claimant("w", None, "exclusive"),
            position: Some(0),
        }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_its_documented_fields_in_order() {
        assert_eq!(
            serde_json::to_string(&sample()).expect("it is JSON"),
            "{\"key\":\"k\",\"kind\":\"mutex\",\"holders\":[{\"claim\":\"c\",\"foreign\":false,\"label\":\"me\",\
             \"mode\":\"exclusive\",\"permits\":null,\"token\":7,\"remaining_ms\":100}],\"waiters\":[{\"claim\":\"w\",\
             \"foreign\":true,\"label\":null,\"mode\":\"exclusive\",\"position\":0}]}"
        );
        let without_queue = KeyStatus {
            waiters: None,
            ..sample()
        };
        let json = serde_json::to_string(&without_queue).expect("it is JSON");
        assert!(json.ends_with(",\"waiters\":null}"), "{json}");
    }
}
