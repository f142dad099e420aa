//! `tenure hold`: its events, its exit codes, and what ends it.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::Scene;

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
    let shown = &scene.call(&["--json", "show", "k"]).objects()[0];
    assert_eq!(shown["holders"][0]["claim"], acquired["claim"]);
    assert_eq!(shown["holders"][0]["token"], acquired["token"]);
    assert_eq!(shown["holders"][0]["label"], "me");
    hold.close_stdin();
    hold.next("released");
    hold.says_nothing_more();
    assert_eq!(hold.finish().code, 0);
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
    let first = scene.hold(&["k", "--fair"]);
    first.next("acquired");
    let second = scene.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    let queue = &scene.call(&["--json", "show", "k"]).objects()[0]["waiters"];
    assert_eq!(queue[0]["claim"], waiting["claim"]);
    assert_eq!(queue[0]["position"], 0);
    first.release();
    assert_eq!(second.next("acquired")["claim"], waiting["claim"]);
    second.release();
}

#[test]
fn busy_timeout_and_cancelled_exit_1() {
    let scene = Scene::new();
    let first = scene.hold(&["k"]);
    first.next("acquired");
    let busy = scene.hold(&["k", "-n"]);
    busy.next("busy");
    busy.says_nothing_more();
    assert_eq!(busy.finish().code, 1);
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
    signalled.process.send(Signal::TERM);
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
        let hold = scene.hold(&["k", "--no-stdin"]);
        hold.next("acquired");
        hold.process.send(signal);
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
    let evicted = scene.hold(&["k", "--lease", "1s"]);
    evicted.next("acquired");
    scene.call(&["evict", "k", "--all"]);
    assert_eq!(evicted.next("lost")["cause"], "evicted");
    assert_eq!(evicted.finish().code, 4);
    let capped = scene.hold(&["k", "--max-hold", "300ms"]);
    capped.next("acquired");
    assert_eq!(capped.next("lost")["cause"], "max_hold");
    assert_eq!(capped.finish().code, 4);
    assert!(!scene.is_busy("k"));
}

#[test]
fn whoever_unlocks_after_an_eviction_is_told_of_it() {
    let scene = Scene::new();
    let mut hold = scene.hold(&["k"]);
    hold.next("acquired");
    scene.call(&["evict", "k", "--all"]);
    // Long before the next renewal.
    hold.close_stdin();
    assert_eq!(hold.next("lost")["cause"], "evicted");
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn a_store_that_cannot_be_reached_loses_the_lock_at_its_local_deadline() {
    let scene = Scene::new();
    let hold = scene.hold(&["k", "--lease", "1s"]);
    hold.next("acquired");
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
    let mut hold = scene.hold(&["k", "--at-least", "1s"]);
    hold.next("acquired");
    hold.close_stdin();
    hold.next("released");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(hold.finish().code, 0);
    let mut hold = scene.hold(&["k", "--at-least", "10m"]);
    hold.next("acquired");
    hold.close_stdin();
    hold.process.send(Signal::TERM);
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
    let shown = &scene.call(&["--json", "show", "k"]).objects()[0];
    let left = shown["holders"][0]["remaining_ms"].as_u64().expect("a number");
    assert!(left <= lease && left > lease - 60_000, "{left} of {lease}");
    hold.release();
}

#[test]
fn events_that_nobody_reads_end_it_and_free_the_lock() {
    let scene = Scene::new();
    let mut child = scene
        .command(&["hold", "k", "--no-stdin"])
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    crate::scene::wait_for("its end", || child.try_wait().expect("it is our child").is_some());
    assert_eq!(child.wait().expect("it is our child").code(), Some(3));
    assert!(!scene.is_busy("k"));
}

#[test]
fn a_store_that_fails_is_told_on_both_outputs_and_exits_3() {
    let scene = Scene::new();
    fs::write(
        scene.path("locks.db"),
        "this is no database, and long enough to be taken for one\n".repeat(99),
    )
    .expect("the folder is ours");
    let hold = scene.hold(&["k"]);
    let error = hold.next("error");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|words| words.contains("locks.db")),
        "{error}"
    );
    let done = hold.finish();
    assert_eq!(done.code, 3);
    assert!(done.stderr.starts_with("error: "), "{done:?}");
}

#[test]
fn a_usage_error_exits_2_and_is_no_event() {
    let scene = Scene::new();
    let first = scene.hold(&["k"]);
    first.next("acquired");
    let mixed = scene.hold(&["k", "-s", "-n"]);
    mixed.says_nothing_more();
    let done = mixed.finish();
    assert_eq!(done.code, 2);
    assert!(
        done.stderr.contains("a mutex") && done.stderr.contains("a read-write lock"),
        "{done:?}"
    );
    let bad = scene.call(&["hold", "", "--no-stdin"]);
    assert_eq!((bad.code, bad.stdout.as_str()), (2, ""));
    first.release();
}
