//! The blocking `Client::watch`, an iterator that waits. `tests/api/changes.rs` tests which changes come in which order.

use std::time::Duration;

use tenure::blocking::Changes;
use tenure::{Change, Error};

use crate::fixture::{SOON, assert_error, client, two_clients};

const OFTEN: Duration = Duration::from_millis(5);

/// Waits for the next change. Returns its kind as a word, and its key.
fn told(changes: &mut Changes) -> (&'static str, String) {
    let change = changes.next_within(SOON).expect("memory answers");
    match change.expect("a change in time") {
        Change::Held(status) => ("held", status.key.to_string()),
        Change::Freed(status) => ("freed", status.key.to_string()),
        other => panic!("no claim waits and the store answers: {other:?}"),
    }
}

#[test]
fn a_watch_reports_the_present_state_then_changes() {
    let (one, other) = two_clients();
    let guard = other.mutex("k:1").lock().expect("it is free");
    let _no_change_of_it = other.mutex("l").lock().expect("it is free");
    let mut changes = one.watch("k:").every(OFTEN);
    assert_eq!(told(&mut changes), ("held", "k:1".to_owned()));
    assert!(matches!(changes.next_within(10 * OFTEN), Ok(None)), "none yet");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| changes.next());
        guard.unlock().expect("it is held");
        let freed = waiting.join().expect("it does not panic");
        let Some(Ok(Change::Freed(status))) = freed else {
            panic!("{freed:?}")
        };
        assert_eq!(status.key.as_str(), "k:1");
    });
}

#[test]
fn a_change_between_two_waits_is_reported_by_the_second() {
    let (one, other) = two_clients();
    let mut changes = one.watch("").every(OFTEN);
    assert!(matches!(changes.next_within(Duration::ZERO), Ok(None)));
    let _guards = ["a", "b"].map(|key| other.mutex(key).lock().expect("it is free"));
    for key in ["a", "b"] {
        assert_eq!(told(&mut changes), ("held", key.to_owned()));
    }
}

#[test]
fn exceeding_the_key_limit_ends_a_blocking_watch() {
    let client = client();
    let _guards = ["a", "b"].map(|key| client.mutex(key).lock().expect("it is free"));
    let mut changes = client.watch("").limit(1);
    assert!(matches!(changes.next(), Some(Err(Error::Limit(_)))));
    assert!(changes.next().is_none(), "an iterator ends after an error");
    // Unlike the iterator, `next_within` scans again after an error.
    assert_error!(changes.next_within(SOON), Error::Limit(_));
}

#[test]
fn closing_the_client_ends_an_idle_watch() {
    let client = client();
    let mut changes = client.watch("").every(Duration::from_secs(3600));
    assert!(matches!(changes.next_within(OFTEN), Ok(None)), "it rests");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| changes.next_within(SOON));
        client.close(SOON).expect("it is confirmed");
        let end = waiting.join().expect("it does not panic");
        assert_error!(end, Error::Closed(_));
    });
    assert!(matches!(changes.next(), Some(Err(Error::Closed(_)))));
}

#[test]
fn a_watch_outlives_its_client() {
    let client = client();
    let guard = client.mutex("k").lock().expect("it is free");
    let mut changes = client.watch("").every(OFTEN);
    drop(client);
    assert_eq!(told(&mut changes), ("held", "k".to_owned()));
    drop(guard);
    assert_eq!(told(&mut changes), ("freed", "k".to_owned()));
}
