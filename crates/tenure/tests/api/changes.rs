//! `Client::watch`: which changes it reports, in which order, and what it does during transient errors.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use tenure::inspect::LockStatus;
use tenure::{Change, Changes, Client, Error, Guard, Mode, Settings};
use tenure_memory::MemoryStore;
use tenure_testkit::{Chaos, FaultRates, SimClock};

const SECOND: Duration = Duration::from_secs(1);

fn store() -> (MemoryStore, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new());
    (MemoryStore::new(clock.clone()), clock)
}

fn client() -> Client {
    let (store, clock) = store();
    Client::new(store.client(clock), Settings::default())
}

async fn hold(client: &Client, key: &str) -> Guard {
    client.mutex(key).lock().await.expect("the lock is free")
}

async fn next(changes: &mut Changes) -> Change {
    tokio::time::timeout(60 * SECOND, changes.next())
        .await
        .expect("a change in time")
        .expect("no error")
}

/// Waits for the next change. Returns its kind as a word, and the status in it.
async fn word(changes: &mut Changes) -> (&'static str, LockStatus) {
    match next(changes).await {
        Change::Held(status) => ("held", status),
        Change::Freed(status) => ("freed", status),
        Change::Holders(status) => ("holders", status),
        Change::Waiters(status) => ("waiters", status),
        other => panic!("no change of a key: {other:?}"),
    }
}

/// Fails if a change is reported within 5 s.
async fn silent(changes: &mut Changes) {
    let change = tokio::time::timeout(5 * SECOND, changes.next()).await;
    assert!(change.is_err(), "{change:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_the_present_state_in_key_order() {
    let client = client();
    let _guards = join_all(["b", "a:2", "a:1"].map(|key| hold(&client, key))).await;
    let mut changes = client.watch("a:");
    for key in ["a:1", "a:2"] {
        let (what, status) = word(&mut changes).await;
        assert_eq!((what, status.key.as_str()), ("held", key));
    }
    silent(&mut changes).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_reports_grants_waiters_hand_overs_and_frees() {
    let client = client();
    let mut changes = client.watch("");
    silent(&mut changes).await;
    let first = hold(&client, "k").await;
    let (what, status) = word(&mut changes).await;
    assert_eq!((what, status.holders.len()), ("held", 1));
    assert_eq!(status.holders[0].token, first.token());

    let waiter = tokio::spawn(client.mutex("k").fair().lock());
    let (what, status) = word(&mut changes).await;
    let queue = status.waiters.map(|queue| queue.len());
    assert_eq!((what, queue), ("waiters", Some(1)));

    first.unlock().await.expect("it was held");
    let second = waiter.await.expect("no panic").expect("it is free");
    let (what, status) = word(&mut changes).await;
    assert_eq!((what, status.holders[0].token), ("holders", second.token()));
    assert_eq!(status.waiters.map(|queue| queue.len()), Some(0));

    second.unlock().await.expect("it was held");
    let (what, status) = word(&mut changes).await;
    assert_eq!((what, status.key.as_str()), ("freed", "k"));
    assert!(status.holders.is_empty(), "{status:?}");
    silent(&mut changes).await;
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_changes_what_a_watch_shows_of_the_holder() {
    let client = client();
    let mut changes = client.watch("");
    let guard = client.rwlock("k").write().await.expect("it is free");
    let (what, status) = word(&mut changes).await;
    assert_eq!((what, status.holders[0].mode), ("held", Mode::Write));
    guard.downgrade().await.expect("it is held");
    let (what, status) = word(&mut changes).await;
    assert_eq!((what, status.holders[0].mode), ("holders", Mode::Read));
    silent(&mut changes).await;
    guard.unlock().await.expect("it was held");
    assert_eq!(word(&mut changes).await.0, "freed");
}

#[tokio::test(start_paused = true)]
async fn renewals_and_passing_time_are_no_changes() {
    let client = client();
    let guard = hold(&client, "k").await;
    let mut changes = client.watch("");
    assert_eq!(word(&mut changes).await.0, "held");
    let quiet = tokio::time::timeout(100 * SECOND, changes.next()).await;
    assert!(quiet.is_err() && guard.is_held(), "{quiet:?}");
}

#[tokio::test(start_paused = true)]
async fn each_key_of_several_pages_is_reported_once() {
    let client = client();
    let mut guards = Vec::new();
    for number in 0..600 {
        guards.push(hold(&client, &format!("k:{number:03}")).await);
    }
    let mut changes = client.watch("k:");
    for number in 0..600 {
        let (what, status) = word(&mut changes).await;
        assert_eq!((what, status.key.to_string()), ("held", format!("k:{number:03}")));
    }
    silent(&mut changes).await;
}

#[tokio::test(start_paused = true)]
async fn exceeding_the_key_limit_ends_a_watch_with_a_message() {
    let client = client();
    let _guards = join_all(["a", "b"].map(|key| hold(&client, key))).await;
    let mut changes = client.watch("").limit(1);
    let error = changes.next().await.expect_err("two keys are too many");
    let says_what_to_do = matches!(&error, Error::Limit(words) if words.contains("longer prefix"));
    assert!(says_what_to_do, "{error}");
    let one = client.watch("a").limit(1).next().await;
    assert!(matches!(one, Ok(Change::Held(_))), "{one:?}");
}

/// Watchers share scans, but each gets changes by its own prefix, limit and interval.
#[tokio::test(start_paused = true)]
async fn watchers_of_one_client_differ_in_prefix_limit_and_interval() {
    let client = client();
    let _guards = [hold(&client, "a:1").await, hold(&client, "a:2").await];
    let (mut all, mut one) = (client.watch("").every(3 * SECOND), client.watch("a:2"));
    let mut few = client.watch("a:").limit(1);
    let (first, second, refused) = tokio::join!(next(&mut all), next(&mut one), few.next());
    for (change, key) in [(first, "a:1"), (second, "a:2")] {
        let is_it = matches!(&change, Change::Held(status) if status.key.as_str() == key);
        assert!(is_it, "{change:?}");
    }
    assert!(matches!(&refused, Err(Error::Limit(_))), "{refused:?}");
    assert_eq!(word(&mut all).await.1.key.as_str(), "a:2");
    silent(&mut one).await;
    let _third = hold(&client, "b").await;
    assert_eq!(word(&mut all).await.1.key.as_str(), "b");
    silent(&mut one).await;
}

/// A new watcher begins with a scan of its own. It does not use the one that another watcher made before the lock was
/// acquired.
#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_the_state_at_its_start() {
    let client = client();
    let mut first = client.watch("");
    silent(&mut first).await;
    let _guard = hold(&client, "k").await;
    let came = tokio::time::Instant::now();
    let mut second = client.watch("");
    assert_eq!(word(&mut second).await.0, "held");
    assert_eq!(came.elapsed(), Duration::ZERO);
    assert_eq!(word(&mut first).await.0, "held");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_scanned_every_second_or_as_configured() {
    let client = client();
    for (mut changes, interval) in [
        (client.watch(""), SECOND),
        (client.watch("").every(7 * SECOND), 7 * SECOND),
        (client.watch("").every(Duration::ZERO), Duration::ZERO),
    ] {
        silent(&mut changes).await;
        let guard = hold(&client, "k").await;
        let began = tokio::time::Instant::now();
        assert_eq!(word(&mut changes).await.0, "held");
        guard.unlock().await.expect("it was held");
        assert_eq!(word(&mut changes).await.0, "freed");
        let took = began.elapsed();
        assert!(took >= interval && took < 2 * interval + SECOND, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_next_loses_no_change() {
    let client = client();
    let _guards = join_all(["a", "b"].map(|key| hold(&client, key))).await;
    let mut changes = client.watch("");
    let mut told = Vec::new();
    for _ in 0..200 {
        let mut next = pin!(changes.next());
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx))).await;
        if let std::task::Poll::Ready(change) = polled {
            told.push(change.expect("no error"));
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(told.len(), 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_reported_once_and_the_watch_goes_on() {
    for seed in 0..4 {
        let (store, clock) = store();
        let calm = Client::new(store.client(clock.clone()), Settings::default());
        let faults = FaultRates {
            fails_before: 50,
            ..FaultRates::NONE
        };
        let chaos = Chaos::new(store.client(clock), seed, faults);
        let mut changes = Client::new(Arc::new(chaos), Settings::default()).watch("");
        let (mut known, mut silences) = (BTreeMap::new(), Vec::new());
        for number in 0..40 {
            let key = format!("k{}", number % 3);
            let guard = hold(&calm, &key).await;
            let end = tokio::time::Instant::now() + 30 * SECOND;
            while let Ok(change) = tokio::time::timeout_at(end, changes.next()).await {
                match change.expect("transient errors are reported as changes") {
                    Change::Unavailable(error) => {
                        assert!(error.is_transient());
                        silences.push(true);
                    }
                    Change::Available => silences.push(false),
                    Change::Held(status) => drop(known.insert(status.key.to_string(), status)),
                    Change::Freed(status) => drop(known.remove(status.key.as_str())),
                    other => panic!("no claim waits: {other:?}"),
                }
            }
            assert_eq!(known.keys().collect::<Vec<_>>(), [&key], "seed {seed}");
            guard.unlock().await.expect("it was held");
        }
        let alternating: Vec<bool> = (0..silences.len()).map(|nth| nth % 2 == 0).collect();
        assert!(silences.len() > 10, "seed {seed}: no errors");
        assert_eq!(silences, alternating, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_the_stream() {
    let client = client();
    let _guard = hold(&client, "k").await;
    let mut changes = client.watch("");
    let held = StreamExt::next(&mut changes).await;
    assert!(matches!(held, Some(Ok(Change::Held(_)))), "{held:?}");
    client.close(SECOND).await.expect("memory closes");
    let end = StreamExt::next(&mut changes).await;
    assert!(matches!(end, Some(Err(Error::Closed(_)))), "{end:?}");
    assert!(StreamExt::next(&mut changes).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_scan_interval_counts_suspended_time() {
    let (store, clock) = store();
    let client = Client::new(store.client(clock.clone()), Settings::default());
    let mut changes = client.watch("").every(3600 * SECOND);
    silent(&mut changes).await;
    clock.suspend(3600 * SECOND);
    let _guard = hold(&client, "k").await;
    let change = tokio::time::timeout(2 * SECOND, changes.next()).await;
    assert!(matches!(change, Ok(Ok(Change::Held(_)))), "{change:?}");
}

/// Starts a thread that waits for the next change, and returns when that thread waits.
fn resting(mut changes: Changes) -> std::thread::JoinHandle<Result<Change, Error>> {
    let (rests, resting) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut next = pin!(changes.next());
            let first = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx))).await;
            assert!(first.is_pending(), "{first:?}");
            rests.send(()).expect("the test waits for it");
            let late = tokio::time::timeout(10 * SECOND, next).await;
            late.expect("it ends long before its rest does")
        })
    });
    resting.recv().expect("it rests");
    thread
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("tokio starts")
}

#[test]
fn a_watch_ends_with_its_clients_runtime() {
    for rests in [false, true] {
        let (home, client) = (runtime(), client());
        home.block_on(async { drop(hold(&client, "k").await.unlock().await) });
        let mut changes = client.watch("").every(3600 * SECOND);
        if rests {
            // Waits until the first scan is over.
            let first = async { tokio::time::timeout(SECOND / 10, changes.next()).await };
            assert!(home.block_on(first).is_err());
        }
        let watcher = resting(changes);
        drop(home);
        let end = watcher.join().expect("it does not panic");
        let said = matches!(end, Err(Error::Closed(why)) if why.contains("runtime"));
        assert!(said, "{end:?}");
    }
}

#[test]
fn closing_the_client_ends_a_watch_at_once() {
    for own_thread in [false, true] {
        let home = runtime();
        let (store, clock) = store();
        let settings = Settings::default().own_thread(own_thread);
        let client = Client::new(store.client(clock), settings);
        home.block_on(async { drop(hold(&client, "k").await.unlock().await) });
        let mut changes = client.watch("").every(3600 * SECOND);
        // Waits until the first scan is over and the watch is idle.
        let first = async { tokio::time::timeout(SECOND / 10, changes.next()).await };
        assert!(home.block_on(first).is_err());
        let watcher = resting(changes);
        home.block_on(client.close(SECOND)).expect("memory closes");
        let end = watcher.join().expect("it does not panic");
        assert!(matches!(end, Err(Error::Closed(_))), "{end:?}");
    }
}
