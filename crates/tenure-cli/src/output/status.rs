//! The objects that `ls`, `show` and `watch` print with `--json`. Programs rely on the fields and their order, which
//! `--help` documents.

use serde::Serialize;

/// A key with its holders and waiters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyStatus {
    /// The key.
    pub key: String,
    /// `mutex`, `read-write` or `semaphore`. `None` while the key has no holder and no waiter.
    pub kind: Option<&'static str>,
    /// The holders.
    pub holders: Vec<Holder>,
    /// The store's queue of fair waiters, in order. `None` if the store does not show it.
    pub waiters: Option<Vec<Waiter>>,
}

/// The fields that holders and waiters have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claimant {
    /// The claim, as `evict --claim` accepts it.
    pub claim: String,
    /// True if the holder or waiter is not a claim of a Tenure client.
    pub foreign: bool,
    /// The label that the claim's client chose. `None` if unknown.
    pub label: Option<String>,
    /// `exclusive`, `read`, `write` or `permits`.
    pub mode: &'static str,
}

/// A holder of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The fields that holders and waiters share.
    #[serde(flatten)]
    pub who: Claimant,
    /// Number of permits of a semaphore that this claim holds. `None` for other kinds.
    pub permits: Option<u32>,
    /// The holder's fencing token, or the first one if the claim has reserved several. `None` if there is none.
    pub token: Option<u64>,
    /// Time left of the holder's lease. `None` if the store has no time limit or does not show it.
    pub remaining_ms: Option<u64>,
}

/// A waiter for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiter {
    /// The fields that holders and waiters share.
    #[serde(flatten)]
    pub who: Claimant,
    /// The waiter's place in the queue, from 0.
    pub position: Option<u32>,
}

/// Test fixture: a claim with a label, or a foreign claim without one.
#[cfg(test)]
pub(super) fn claimant(claim: &str, label: Option<&str>, mode: &'static str) -> Claimant {
    Claimant {
        claim: claim.into(),
        foreign: label.is_none(),
        label: label.map(str::to_owned),
        mode,
    }
}

/// Test fixture: a key with a holder and a foreign waiter.
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
