//! `tenure hold`: its events, its exit codes, and what ends it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::{Process, Scene};

#[test]
fn it_tells_what_it_holds_and_releases_at_the_end_of_stdin() {
    let scene = Scene::new();
    let mut hold = scene.hold(&["k", "--label", "me", "--lease", "20s"]);
    let acquired = hold.next("acquired");
    assert_eq!(acquired["key"], "k");
    assert_eq!(acquired["mode"], "exclusive");
    assert_eq!(acquired["lease_ms"], 20_000);
    assert_eq!(acquired["store"], "sqlite");
    assert!(
        acquired["token"].is_u64() && acquired["waited_ms"].is_u64(),
        "{acquired}"
    );
    let holder = &scene.shown("k")["holders"][0];
    assert_eq!(holder["claim"], acquired["claim"]);
    assert_eq!(holder["token"], acquired["token"]);
    assert_eq!(holder["label"], "me");
    hold.close_stdin();
    hold.next("released");
    hold.ends(0);
    assert!(!scene.is_busy("k"));
}

#[test]
fn a_multi_lock_has_members() {
    let scene = Scene::new();
    let hold = scene.hold(&["b", "a", "-x"]);
    let acquired = hold.next("acquired");
    assert_eq!(acquired["members"][0]["key"], "b");
    assert_eq!(acquired["members"][1]["key"], "a");
    assert_eq!(acquired["mode"], "write");
    assert!(acquired.get("token").is_none() && acquired.get("key").is_none());
    hold.release();
}

#[test]
fn waiting_is_told_once_and_its_claim_is_in_the_queue() {
    let scene = Scene::new();
    let first = scene.holding(&["k", "--fair"]);
    let second = scene.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    let waiter = &scene.shown("k")["waiters"][0];
    assert_eq!(waiter["claim"], waiting["claim"]);
    assert_eq!(waiter["position"], 0);
    first.release();
    assert_eq!(second.next("acquired")["claim"], waiting["claim"]);
    second.release();
}

#[test]
fn busy_timeout_and_cancelled_exit_1() {
    let scene = Scene::new();
    let first = scene.holding(&["k"]);
    let busy = scene.hold(&["k", "-n"]);
    busy.next("busy");
    busy.ends(1);
    let timeout = scene.hold(&["k", "-w", "200ms"]);
    timeout.next("waiting");
    timeout.next("timeout");
    assert_eq!(timeout.finish().code, 1);
    let mut ended = scene.hold(&["k"]);
    ended.next("waiting");
    ended.close_stdin();
    ended.next("cancelled");
    assert_eq!(ended.finish().code, 1);
    let signalled = scene.hold(&["k"]);
    signalled.next("waiting");
    signalled.send(Signal::TERM);
    signalled.next("cancelled");
    assert_eq!(signalled.finish().code, 1);
    first.release();
    assert!(!scene.is_busy("k"));
}

#[test]
fn a_free_lock_is_had_even_if_stdin_has_ended() {
    let scene = Scene::new();
    let mut hold = scene.hold(&["k"]);
    hold.close_stdin();
    hold.next("acquired");
    hold.next("released");
    assert_eq!(hold.finish().code, 0);
}

#[test]
fn a_signal_releases() {
    let scene = Scene::new();
    for signal in [Signal::INT, Signal::TERM] {
        let hold = scene.holding(&["k", "--no-stdin"]);
        hold.send(signal);
        hold.next("released");
        assert_eq!(hold.finish().code, 0);
    }
}

#[test]
fn the_null_device_as_stdin_is_a_usage_error() {
    let scene = Scene::new();
    let refused = scene.call(&["hold", "k"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("--no-stdin"), "{refused:?}");
}

/// R28: who holds a lock for another program is told of its loss.
#[test]
fn a_lost_lock_exits_4() {
    let scene = Scene::new();
    let evicted = scene.holding(&["k", "--lease", "1s"]);
    scene.evict("k");
    assert_eq!(evicted.next("lost")["cause"], "evicted");
    assert_eq!(evicted.finish().code, 4);
    let capped = scene.holding(&["k", "--max-hold", "300ms"]);
    assert_eq!(capped.next("lost")["cause"], "max_hold");
    assert_eq!(capped.finish().code, 4);
    assert!(!scene.is_busy("k"));
}

#[test]
fn whoever_unlocks_after_an_eviction_is_told_of_it() {
    let scene = Scene::new();
    let mut hold = scene.holding(&["k"]);
    scene.evict("k");
    // Long before the next renewal.
    hold.close_stdin();
    assert_eq!(hold.next("lost")["cause"], "evicted");
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn a_store_that_cannot_be_reached_loses_the_lock_at_its_local_deadline() {
    let scene = Scene::new();
    let hold = scene.holding(&["k", "--lease", "1s"]);
    let _blocked = scene.block();
    let began = Instant::now();
    assert_eq!(hold.next("lost")["cause"], "unreachable");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn at_least_outlasts_stdin_and_not_a_signal() {
    let scene = Scene::new();
    let began = Instant::now();
    let mut hold = scene.holding(&["k", "--at-least", "1s"]);
    hold.close_stdin();
    hold.next("released");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(hold.finish().code, 0);
    let mut hold = scene.holding(&["k", "--at-least", "10m"]);
    hold.close_stdin();
    hold.send(Signal::TERM);
    hold.next("released");
    assert_eq!(hold.finish().code, 0);
    assert!(!scene.is_busy("k"));
}

#[test]
fn a_lease_beyond_the_stores_limits_is_rounded_and_shown() {
    let scene = Scene::new();
    let hold = scene.hold(&["k", "--lease", "87600h"]);
    let lease = hold.next("acquired")["lease_ms"].as_u64().expect("a number");
    assert!(lease > 0 && lease < 87_600 * 3_600_000, "{lease}");
    let left = scene.shown("k")["holders"][0]["remaining_ms"]
        .as_u64()
        .expect("a number");
    assert!(left <= lease && left > lease - 60_000, "{left} of {lease}");
    hold.release();
}

#[test]
fn events_that_nobody_reads_end_it_and_free_the_lock() {
    let scene = Scene::new();
    let mut hold = scene.command(&["hold", "k", "--no-stdin"]);
    let mut hold = hold.spawn().expect("it starts");
    drop(hold.stdout.take());
    Process::of(hold).ends(3);
    assert!(!scene.is_busy("k"));
}

#[test]
fn a_store_that_fails_is_told_on_both_outputs_and_exits_3() {
    let scene = Scene::new();
    scene.break_store();
    let hold = scene.hold(&["k"]);
    let error = hold.next("error");
    let words = error["message"].as_str().expect("a text");
    assert!(words.contains("locks.db"), "{words}");
    let done = hold.finish();
    assert_eq!(done.code, 3);
    assert!(done.stderr.starts_with("error: "), "{done:?}");
}

#[test]
fn a_usage_error_exits_2_and_is_no_event() {
    let scene = Scene::new();
    let first = scene.holding(&["k"]);
    let mixed = scene.hold(&["k", "-s", "-n"]);
    let done = mixed.ends(2);
    assert!(
        done.stderr.contains("a mutex") && done.stderr.contains("a read-write lock"),
        "{done:?}"
    );
    first.release();
}
