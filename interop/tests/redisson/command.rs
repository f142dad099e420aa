//! The `tenure` command beside a Java fleet: looking, taking away, and holding in a process that dies.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure::{HolderId, LockKey};
use tenure_interop::redisson::Version;

use crate::examples::{Process, Scene as Folder, tenure_command};
use crate::scene::{PROMPT, Scene, assert_holds_nothing, within};
use crate::waiter::Waiter;

/// Where the command works. If it is to be built first, that is now, while nobody holds a lock.
fn folder_for_tenure() -> Folder {
    let _ = tenure_command();
    Folder::new()
}

/// `tenure` with these words, on that Redis.
fn tenure(folder: &Folder, scene: &Scene, words: &[&str]) -> Process {
    let mut command = folder.command(tenure_command());
    command.args(words).env("TENURE_URL", scene.redis.url());
    Process::start(command)
}

/// What it prints, as JSON, one value a line; it must end well.
fn printed(folder: &Folder, scene: &Scene, words: &[&str]) -> Vec<Value> {
    let mut tenure = tenure(folder, scene, words);
    let lines = tenure.rest();
    assert_eq!(tenure.exit_code(), 0, "{words:?}: {lines:?}");
    let read = |line: &String| serde_json::from_str(line).unwrap();
    lines.iter().map(read).collect()
}

#[tokio::test]
async fn an_operator_sees_a_java_thread_and_takes_its_lock_away() {
    for scene in Scene::each().await {
        let folder = folder_for_tenure();
        let anna = scene.java.owner("anna");
        anna.plain("k").lock().await.unwrap();
        let name = anna.id().await.unwrap();
        for look in [&["--json", "show", "k"][..], &["--json", "ls"]] {
            let locks = printed(&folder, &scene, look);
            assert_eq!(locks.len(), 1, "{locks:?}");
            let holder = &locks[0]["holders"][0];
            assert_eq!(locks[0]["key"], "k");
            assert_eq!(holder["claim"], name.as_str());
            assert_eq!(holder["foreign"], true);
            assert_eq!(holder["token"], Value::Null);
            assert!(holder["remaining_ms"].as_u64() > Some(20_000), "{holder}");
        }
        printed(&folder, &scene, &["--json", "evict", "k", "--claim", &name]);
        assert!(!anna.plain("k").is_locked().await.unwrap());
        assert_holds_nothing(&anna.plain("k")).await;
        assert_eq!(printed(&folder, &scene, &["--json", "ls"]), [] as [Value; 0]);
    }
}

#[tokio::test]
async fn a_holder_that_is_killed_is_waited_for_by_java_until_its_lease_ends() {
    let Some(scene) = Scene::new(Version::Newest).await else {
        return;
    };
    let (folder, lease) = (folder_for_tenure(), Duration::from_secs(2));
    let hold = tenure(&folder, &scene, &["hold", "k", "--lease", "2s"]);
    assert!(hold.line_with("{").contains("\"acquired\""));
    let waiting = scene.java_plain("anna").lock();
    scene.until_listening("k", 1).await;
    hold.send(Signal::KILL);
    within(lease + PROMPT, "the lock", waiting).await.unwrap();
}

/// A process that waits with that lease, at place 1 of the queue; and what it says.
async fn waiting_process(folder: &Folder, scene: &Scene, lease: &str) -> (Process, String) {
    let waiter = tenure(folder, scene, &["hold", "k", "--fair", "--lease", lease]);
    let said = waiter.line_with("{");
    assert!(said.contains("\"waiting\""), "{said}");
    scene.until_queued("k", 1).await;
    (waiter, said)
}

#[tokio::test]
async fn a_fair_waiter_that_is_killed_stalls_java_no_longer_than_its_lease() {
    for scene in Scene::each().await {
        let (folder, lease) = (folder_for_tenure(), Duration::from_secs(2));
        let guard = scene.mutex().fair().lock().await.unwrap();
        let (dead, _) = waiting_process(&folder, &scene, "2s").await;
        let second = Waiter::java(scene.java_fair("anna"));
        scene.until_queued("k", 2).await;
        // Somebody of Tenure's lives, and looks after the queue.
        let third = Waiter::tenure(scene.mutex().fair());
        scene.until_queued("k", 3).await;
        dead.send(Signal::KILL);
        guard.unlock().await.unwrap();
        second.holds_within(lease + PROMPT, "Java").await.unlock().await;
        third.holds_within(PROMPT, "Tenure").await.unlock().await;
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn a_fair_waiter_that_is_killed_stalls_a_fleet_of_java_alone_no_longer_than_its_lease() {
    for scene in Scene::each().await {
        let (folder, lease) = (folder_for_tenure(), Duration::from_secs(2));
        // Java sleeps for as long as the holder's lease, as it last saw it, or until it is called.
        let guard = scene.mutex().fair().lease(lease).lock().await.unwrap();
        let (dead, _) = waiting_process(&folder, &scene, "2s").await;
        let second = Waiter::java(scene.java_fair("anna"));
        scene.until_queued("k", 2).await;
        dead.send(Signal::KILL);
        guard.unlock().await.unwrap();
        let java = second.holds_within(lease * 2 + PROMPT, "Java").await;
        java.unlock().await;
    }
}

#[tokio::test]
async fn java_is_told_when_the_head_of_the_queue_is_evicted_while_the_lock_is_free() {
    for scene in Scene::each().await {
        let folder = folder_for_tenure();
        let guard = scene.mutex().fair().lock().await.unwrap();
        let (head, said) = waiting_process(&folder, &scene, "30s").await;
        let waiting: Value = serde_json::from_str(&said).unwrap();
        let second = scene.java_fair("anna").lock();
        scene.until_queued("k", 2).await;
        head.send(Signal::STOP);
        guard.unlock().await.unwrap();
        let claim = HolderId::parse(waiting["claim"].as_str().expect("it says which"));
        let on_key = claim.clone().on(LockKey::new("k").unwrap());
        assert_eq!(scene.client.evict(on_key).await.unwrap(), [claim]);
        within(PROMPT, "the lock", second).await.unwrap();
    }
}
