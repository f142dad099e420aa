//! `tenure hold`: its events, its exit codes, and its end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::{Fixture, Process, fill, small_pipe, wait_for};

#[test]
fn hold_prints_its_lock_and_releases_when_stdin_ends() {
    let fixture = Fixture::new();
    let mut hold = fixture.hold(&["k", "--label", "me", "--lease", "20s"]);
    let acquired = hold.next("acquired");
    assert_eq!(acquired["key"], "k");
    assert_eq!(acquired["mode"], "exclusive");
    assert_eq!(acquired["lease_ms"], 20_000);
    assert_eq!(acquired["store"], "sqlite");
    assert!(
        acquired["token"].is_u64() && acquired["waited_ms"].is_u64(),
        "{acquired}"
    );
    let holder = &fixture.shown("k")["holders"][0];
    assert_eq!(holder["claim"], acquired["claim"]);
    assert_eq!(holder["token"], acquired["token"]);
    assert_eq!(holder["label"], "me");
    hold.close_stdin();
    hold.next("released");
    hold.ends(0);
    assert!(!fixture.is_busy("k"));
}

/// A program that reads the events can stop in time, even if `hold` is stopped.
#[test]
fn each_renewal_says_for_how_long_the_lock_is_valid() {
    let fixture = Fixture::new();
    let hold = fixture.hold(&["k", "--lease", "6s"]);
    let acquired = hold.next("acquired");
    assert_eq!(acquired["v"], 1);
    let valid = |event: &serde_json::Value| event["valid_ms"].as_u64().expect("a number");
    // The local deadline comes a little before the end of the lease. Without the renewal, 4 s would be left.
    assert!((4_200..6_000).contains(&valid(&acquired)), "{acquired}");
    for _ in 0..2 {
        let renewed = hold.next("renewed");
        assert!((4_200..6_000).contains(&valid(&renewed)), "{renewed}");
        assert!(renewed.get("v").is_none(), "{renewed}");
    }
    let waiting = fixture.hold(&["k", "-w", "2s"]);
    assert_eq!(waiting.next("waiting")["v"], 1);
    assert!(waiting.next("timeout")["holder"].is_string());
    let busy = fixture.hold(&["k", "-n"]).next("busy");
    assert_eq!(
        (&busy["v"], busy["holder"].is_string()),
        (&1.into(), true),
        "{busy}"
    );
    hold.release();
}

#[test]
fn a_multi_lock_has_members() {
    let fixture = Fixture::new();
    let hold = fixture.hold(&["b", "a", "-x"]);
    let acquired = hold.next("acquired");
    assert_eq!(acquired["members"][0]["key"], "b");
    assert_eq!(acquired["members"][1]["key"], "a");
    assert_eq!(acquired["mode"], "write");
    assert!(acquired.get("token").is_none() && acquired.get("key").is_none());
    hold.release();
}

#[test]
fn waiting_is_printed_once_and_names_the_claim_in_the_queue() {
    let fixture = Fixture::new();
    let first = fixture.holding(&["k", "--fair"]);
    let second = fixture.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    let waiter = &fixture.shown("k")["waiters"][0];
    assert_eq!(waiter["claim"], waiting["claim"]);
    assert_eq!(waiter["position"], 0);
    first.release();
    assert_eq!(second.next("acquired")["claim"], waiting["claim"]);
    second.release();
}

#[test]
fn busy_timeout_and_cancelled_exit_1() {
    let fixture = Fixture::new();
    let first = fixture.holding(&["k"]);
    let busy = fixture.hold(&["k", "-n"]);
    busy.next("busy");
    busy.ends(1);
    let timeout = fixture.hold(&["k", "-w", "2s"]);
    timeout.next("waiting");
    timeout.next("timeout");
    assert_eq!(timeout.finish().code, 1);
    let mut ended = fixture.hold(&["k"]);
    ended.next("waiting");
    ended.close_stdin();
    ended.next("cancelled");
    assert_eq!(ended.finish().code, 1);
    let signalled = fixture.hold(&["k"]);
    signalled.next("waiting");
    signalled.send(Signal::TERM);
    signalled.next("cancelled");
    assert_eq!(signalled.finish().code, 1);
    first.release();
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_free_lock_is_acquired_even_if_stdin_has_ended() {
    let fixture = Fixture::new();
    let mut hold = fixture.hold(&["k"]);
    hold.close_stdin();
    hold.next("acquired");
    hold.next("released");
    assert_eq!(hold.finish().code, 0);
}

#[test]
fn a_signal_releases() {
    let fixture = Fixture::new();
    for signal in [Signal::INT, Signal::TERM] {
        let hold = fixture.holding(&["k", "--no-stdin"]);
        hold.send(signal);
        hold.next("released");
        assert_eq!(hold.finish().code, 0);
    }
}

#[test]
fn the_null_device_as_stdin_is_a_usage_error() {
    let fixture = Fixture::new();
    let refused = fixture.call(&["hold", "k"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("--no-stdin"), "{refused:?}");
}

/// R28: a program for which `hold` keeps a lock learns when the lock is lost.
#[test]
fn a_lost_lock_exits_4() {
    let fixture = Fixture::new();
    let evicted = fixture.holding(&["k", "--lease", "3s"]);
    fixture.evict("k");
    assert_eq!(evicted.next("lost")["cause"], "evicted");
    assert_eq!(evicted.finish().code, 4);
    let capped = fixture.holding(&["k", "--max-hold", "300ms"]);
    assert_eq!(capped.next("lost")["cause"], "max_hold");
    assert_eq!(capped.finish().code, 4);
    assert!(!fixture.is_busy("k"));
}

/// As the guide on other languages says.
#[test]
fn the_loss_of_one_key_ends_a_hold_of_several() {
    let fixture = Fixture::new();
    let hold = fixture.holding(&["a", "b", "--lease", "3s"]);
    fixture.evict("b");
    assert_eq!(hold.next("lost")["cause"], "evicted");
    assert_eq!(hold.finish().code, 4);
    assert!(!fixture.is_busy("a"));
}

#[test]
fn releasing_an_evicted_lock_reports_the_eviction() {
    let fixture = Fixture::new();
    let mut hold = fixture.holding(&["k"]);
    fixture.evict("k");
    // The release finds the eviction long before the next renewal would.
    hold.close_stdin();
    assert_eq!(hold.next("lost")["cause"], "evicted");
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn an_unreachable_store_loses_the_lock_at_its_local_deadline() {
    let fixture = Fixture::new();
    let hold = fixture.holding(&["k", "--lease", "1s"]);
    let _blocked = fixture.block();
    let began = Instant::now();
    assert_eq!(hold.next("lost")["cause"], "unreachable");
    // The store would answer that it is blocked after 5 s.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn at_least_outlasts_stdin_but_not_a_signal() {
    let fixture = Fixture::new();
    let began = Instant::now();
    let mut hold = fixture.holding(&["k", "--at-least", "1s"]);
    hold.close_stdin();
    hold.next("released");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(hold.finish().code, 0);
    let mut hold = fixture.holding(&["k", "--at-least", "10m"]);
    hold.close_stdin();
    hold.send(Signal::TERM);
    hold.next("released");
    assert_eq!(hold.finish().code, 0);
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_lease_beyond_the_stores_longest_is_an_error_that_names_it() {
    let fixture = Fixture::new();
    for (args, code) in [
        (&["hold", "k", "--no-stdin", "--lease", "87600h"][..], 2),
        (&["hold", "k", "l", "--no-stdin", "--lease", "87600h"], 2),
        (&["run", "k", "--lease", "87600h", "--", "touch", "ran"], 125),
        (&["elect", "k", "--lease", "87600h", "--", "touch", "ran"], 125),
    ] {
        let done = fixture.call(args);
        assert_eq!((done.code, &*done.stdout), (code, ""), "{args:?}: {done:?}");
        assert!(
            done.stderr.contains("a lease lasts at most "),
            "{args:?}: {done:?}"
        );
    }
    assert!(!fixture.path("ran").exists());
    assert!(!fixture.is_busy("k"));
}

/// Starts a `hold` of `k` whose reader has read the first event, and then left the pipe full.
fn hold_with_a_reader_behind(mut command: Command) -> (Process, BufReader<fs::File>) {
    let (reader, writer) = small_pipe();
    command.stdout(writer.try_clone().expect("a descriptor"));
    let hold = Process::of(command.spawn().expect("it starts"));
    // It has the writing end too, which would keep the pipe open.
    drop(command);
    let mut events = BufReader::new(reader);
    let mut first = String::new();
    events.read_line(&mut first).expect("text");
    assert!(first.contains("acquired"), "{first}");
    fill(&writer);
    (hold, events)
}

#[test]
fn a_reader_that_is_behind_delays_no_renewal_and_no_release() {
    let fixture = Fixture::new();
    let command = fixture.command(&["hold", "k", "--no-stdin", "--lease", "3s"]);
    let (hold, events) = hold_with_a_reader_behind(command);
    // sleep: two leases, in which a hold that waits for its reader would lose its lock.
    std::thread::sleep(Duration::from_secs(6));
    assert!(fixture.is_busy("k"));
    hold.send(Signal::TERM);
    wait_for("the release", || !fixture.is_busy("k"));
    let rest = std::io::read_to_string(events).expect("text");
    assert!(rest.trim_end().ends_with(r#"{"event":"released"}"#), "{rest}");
    assert_eq!(hold.finish().code, 0);
}

#[test]
fn a_reader_that_is_behind_delays_no_warning_of_a_loss() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["hold", "k", "--no-stdin", "--lease", "3s"]);
    command.stderr(fs::File::create(fixture.path("warnings")).expect("a file"));
    let (hold, events) = hold_with_a_reader_behind(command);
    fixture.evict("k");
    let warned = &fixture.lines("warnings", 1)[0];
    assert!(warned.contains("evicted"), "{warned}");
    let rest = std::io::read_to_string(events).expect("text");
    assert!(rest.contains(r#"{"event":"lost","cause":"evicted"}"#), "{rest}");
    assert_eq!(hold.finish().code, 4);
}

#[test]
fn hold_ends_and_releases_when_its_output_is_closed() {
    let fixture = Fixture::new();
    let mut hold = fixture.command(&["hold", "k", "--no-stdin"]);
    let mut hold = hold.spawn().expect("it starts");
    drop(hold.stdout.take());
    Process::of(hold).ends(3);
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_store_failure_prints_an_event_and_a_message_and_exits_3() {
    let fixture = Fixture::new();
    fixture.break_store();
    let hold = fixture.hold(&["k"]);
    let error = hold.next("error");
    let words = error["message"].as_str().expect("a text");
    assert!(words.contains("locks.db"), "{words}");
    let done = hold.finish();
    assert_eq!(done.code, 3);
    assert!(done.stderr.starts_with("error: "), "{done:?}");
}

#[test]
fn a_usage_error_exits_2_without_an_event() {
    let fixture = Fixture::new();
    let first = fixture.holding(&["k"]);
    let mixed = fixture.hold(&["k", "-s", "-n"]);
    let done = mixed.ends(2);
    assert!(
        done.stderr.contains("a mutex") && done.stderr.contains("a read-write lock"),
        "{done:?}"
    );
    first.release();
}
