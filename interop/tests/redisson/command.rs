//! The `tenure` command and Java clients on the same locks: listing, evicting, and a process that dies while it holds
//! or waits.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure::{HolderId, LockKey};

use crate::examples::{Fixture as Folder, Process, tenure_command};
use crate::fixture::{Fixture, PROMPT, assert_holds_nothing, within};
use crate::waiter::Waiter;

/// The folder in which `tenure` runs. Also builds `tenure`, before the test holds a lock.
fn folder_for_tenure() -> Folder {
    let _ = tenure_command();
    Folder::new()
}

/// Starts `tenure` with these arguments, on the Redis of the fixture.
fn tenure(folder: &Folder, fixture: &Fixture, words: &[&str]) -> Process {
    let mut command = folder.command(tenure_command());
    command.args(words).env("TENURE_URL", fixture.redis.url());
    Process::start(command)
}

/// Runs `tenure`, which must succeed, and returns the lines of JSON that it prints.
fn printed(folder: &Folder, fixture: &Fixture, words: &[&str]) -> Vec<Value> {
    let mut tenure = tenure(folder, fixture, words);
    let lines = tenure.rest();
    assert_eq!(tenure.exit_code(), 0, "{words:?}: {lines:?}");
    let read = |line: &String| serde_json::from_str(line).unwrap();
    lines.iter().map(read).collect()
}

#[tokio::test]
async fn an_operator_lists_and_evicts_a_java_thread() {
    for fixture in Fixture::each().await {
        let folder = folder_for_tenure();
        let anna = fixture.java.owner("anna");
        anna.plain("k").lock().await.unwrap();
        let name = anna.id().await.unwrap();
        for look in [&["--json", "show", "k"][..], &["--json", "ls"]] {
            let locks = printed(&folder, &fixture, look);
            assert_eq!(locks.len(), 1, "{locks:?}");
            let holder = &locks[0]["holders"][0];
            assert_eq!(locks[0]["key"], "k");
            assert_eq!(holder["claim"], name.as_str());
            assert_eq!(holder["foreign"], true);
            assert_eq!(holder["token"], Value::Null);
            assert!(holder["remaining_ms"].as_u64() > Some(20_000), "{holder}");
        }
        printed(&folder, &fixture, &["--json", "evict", "k", "--claim", &name]);
        assert!(!anna.plain("k").is_locked().await.unwrap());
        assert_holds_nothing(&anna.plain("k")).await;
        assert_eq!(printed(&folder, &fixture, &["--json", "ls"]), [] as [Value; 0]);
    }
}

/// Starts a `tenure` process that waits for the key, as the first of the queue and with the given lease. Also returns
/// the line that it printed.
async fn waiting_process(folder: &Folder, fixture: &Fixture, lease: &str) -> (Process, String) {
    let waiter = tenure(folder, fixture, &["hold", "k", "--fair", "--lease", lease]);
    let said = waiter.line_with("{");
    assert!(said.contains("\"waiting\""), "{said}");
    fixture.until_queued("k", 1).await;
    (waiter, said)
}

#[tokio::test]
async fn a_killed_fair_waiter_delays_java_by_its_lease_at_most() {
    for fixture in Fixture::each().await {
        let (folder, lease) = (folder_for_tenure(), Duration::from_secs(2));
        let guard = fixture.mutex().fair().lock().await.unwrap();
        let (dead, _) = waiting_process(&folder, &fixture, "2s").await;
        let second = Waiter::java(fixture.java_fair("anna"));
        fixture.until_queued("k", 2).await;
        // A live waiter of Tenure removes dead ones from the queue.
        let third = Waiter::tenure(fixture.mutex().fair());
        fixture.until_queued("k", 3).await;
        dead.send(Signal::KILL);
        guard.unlock().await.unwrap();
        second.holds_within(lease + PROMPT, "Java").await.unlock().await;
        third.holds_within(PROMPT, "Tenure").await.unlock().await;
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn a_killed_fair_waiter_delays_java_alone_by_its_lease() {
    for fixture in Fixture::each().await {
        // The waiter dies before it renews its place, which it does after a third of this lease.
        let (folder, lease) = (folder_for_tenure(), Duration::from_secs(6));
        // Java sleeps until it is woken, at most for the holder's lease as Java last saw it.
        let guard = fixture.mutex().fair().lease(lease).lock().await.unwrap();
        let (dead, _) = waiting_process(&folder, &fixture, "6s").await;
        let second = Waiter::java(fixture.java_fair("anna"));
        fixture.until_queued("k", 2).await;
        dead.send(Signal::KILL);
        guard.unlock().await.unwrap();
        let java = second.holds_within(lease * 2 + PROMPT, "Java").await;
        java.unlock().await;
    }
}

#[tokio::test]
async fn evicting_the_first_waiter_of_a_free_lock_wakes_java() {
    for fixture in Fixture::each().await {
        let folder = folder_for_tenure();
        let guard = fixture.mutex().fair().lock().await.unwrap();
        let (head, said) = waiting_process(&folder, &fixture, "30s").await;
        let waiting: Value = serde_json::from_str(&said).unwrap();
        let second = fixture.java_fair("anna").lock();
        fixture.until_queued("k", 2).await;
        head.send(Signal::STOP);
        guard.unlock().await.unwrap();
        let claim = HolderId::parse(waiting["claim"].as_str().expect("it says which"));
        let on_key = claim.clone().on(LockKey::new("k").unwrap());
        assert_eq!(fixture.client.evict(on_key).await.unwrap(), [claim]);
        within(PROMPT, "the lock", second).await.unwrap();
    }
}
