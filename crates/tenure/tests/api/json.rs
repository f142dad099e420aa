//! The JSON of what the library returns. Its shape is that of the command's `--json`.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, from_value, json, to_value};
use tenure::backend::{BackendError, ClientId, LeaseClock, Liveness};
use tenure::inspect::{Cursor, Finding, HolderStatus, LockStatus, Page, WaiterStatus};
use tenure::{
    Change, ClaimId, ClaimRef, Effect, Error, Fault, FencingToken, Guarantee, HolderId, Kind, LockKey,
    LostCause, Mode,
};

const CLAIM: &str = "07070707-0707-4707-8707-070707070707:3";

/// The status of a semaphore: one claim holds two permits, and a client of another library waits.
fn semaphore() -> LockStatus {
    let of = NonZeroU32::new(3).unwrap();
    let take = NonZeroU32::new(2).unwrap();
    let mode = Mode::Permits { take, of };
    let (token, remaining) = (FencingToken::new(7), Some(Duration::from_micros(1_500)));
    let holder = HolderStatus::new(HolderId::parse(CLAIM), Some("me".into()), mode, token, remaining);
    let waiter = WaiterStatus::new(HolderId::parse("thread-12"), None, mode);
    let key = LockKey::new("k").unwrap();
    LockStatus::new(key, Kind::Semaphore { of }, vec![holder], Some(vec![waiter]))
}

fn semaphore_object() -> Value {
    json!({
        "key": "k",
        "kind": "semaphore",
        "holders": [{"claim": CLAIM, "foreign": false, "label": "me", "mode": "permits",
            "permits": 2, "token": 7, "remaining_ms": 1}],
        "waiters": [{"claim": "thread-12", "foreign": true, "label": null, "mode": "permits", "position": 0}],
    })
}

#[test]
fn a_listing_has_the_fields_of_the_commands_json() {
    let next = Some(Cursor::new("k"));
    let page = Page::new(vec![semaphore()], next);
    assert_eq!(
        to_value(page).unwrap(),
        json!({"items": [semaphore_object()], "next": "k"})
    );
    let mut unknown_queue = semaphore();
    unknown_queue.waiters = None;
    assert_eq!(to_value(unknown_queue).unwrap()["waiters"], Value::Null);
}

#[test]
fn a_change_has_its_word_and_the_fields_of_the_key() {
    let mut held = semaphore_object();
    held["change"] = json!("held");
    assert_eq!(to_value(Change::Held(semaphore())).unwrap(), held);
    assert_eq!(
        to_value(Change::Available).unwrap(),
        json!({"change": "available"})
    );
    let silent = BackendError::new(Fault::Unavailable, Effect::Unknown, "no answer within 3 s");
    let message = "no answer within 3 s";
    assert_eq!(
        to_value(Change::Unavailable(Error::from(silent))).unwrap(),
        json!({"change": "unavailable", "message": message})
    );
}

#[test]
fn names_tokens_and_findings_are_read_back_from_json() {
    fn round_trip<T>(value: T, expected: Value)
    where
        T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        assert_eq!(to_value(&value).unwrap(), expected);
        assert_eq!(from_value::<T>(expected).unwrap(), value);
    }
    let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
    let key = LockKey::new("k").unwrap();
    round_trip(key.clone(), json!("k"));
    round_trip(id, json!(CLAIM));
    round_trip(HolderId::parse(CLAIM), json!(CLAIM));
    round_trip(HolderId::parse("thread-12"), json!("thread-12"));
    round_trip(ClaimRef { key, id }, json!({"key": "k", "claim": CLAIM}));
    round_trip(FencingToken::new(7).unwrap(), json!(7));
    round_trip(
        Finding::danger("a", "b"),
        json!({"severity": "danger", "what": "a", "consequence": "b"}),
    );
    round_trip(Guarantee::BetweenMachines, json!("between_machines"));
    round_trip(
        Liveness::Lease(LeaseClock::ServerWall),
        json!({"lease": "server_wall"}),
    );
    assert!(from_value::<LockKey>(json!("")).is_err());
    assert!(from_value::<FencingToken>(json!(0)).is_err());
    assert!(from_value::<ClaimId>(json!("thread-12")).is_err());
}

#[tokio::test]
async fn a_profile_has_words_numbers_and_milliseconds() {
    let client = tenure::connect("memory:").await.unwrap();
    let object = to_value(client.profile()).unwrap();
    assert_eq!(object["store"], json!("memory"));
    assert_eq!(object["hazards"], json!([]));
    assert_eq!(object["inspection"]["lists"], json!(true));
    let longest = client.profile().limits.max_lease.as_millis();
    assert_eq!(
        object["limits"]["max_lease_ms"],
        json!(u64::try_from(longest).unwrap())
    );
    assert_eq!(object["first_renewal_ms"], Value::Null);
}

#[test]
fn the_cause_of_a_loss_is_its_word() {
    let evicted = LostCause::Evicted {
        by: Some("ada".into()),
    };
    assert_eq!(to_value(evicted).unwrap(), json!("evicted"));
}
