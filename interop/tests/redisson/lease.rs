//! Leases and watchdogs side by side: who renews keeps, and who is gone is waited for no longer than its lease.

use std::time::{Duration, Instant};

use tenure_interop::redisson::{Jvm, Version};

use crate::scene::{LIMIT, PROMPT, Scene, assert_holds_nothing, is_still_waiting_after, within};
use crate::waiter::Waiter;

const SHORT: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn both_watchdogs_keep_what_is_theirs_beyond_its_lease() {
    for version in Version::ALL {
        let Some(jvm) = Jvm::shared(version) else { return };
        let scene = Scene::in_jvm(&jvm, SHORT).await;
        let java = |name: &str, key: &str| scene.java.owner(name).plain(key);
        java("anna", "java's").lock().await.unwrap();
        let guard = scene.client.mutex("ours").lease(SHORT).lock().await.unwrap();
        let mut ours = tokio::spawn(scene.client.mutex("java's").lease(SHORT).lock());
        let mut theirs = java("berta", "ours").lock();
        let both = async {
            tokio::select! { _ = &mut ours => (), _ = &mut theirs => () }
        };
        assert!(is_still_waiting_after(SHORT * 2, Box::pin(both)).await);
        guard.unlock().await.unwrap();
        java("anna", "java's").unlock().await.unwrap();
        within(PROMPT, "ours", theirs).await.unwrap();
        let guard = within(PROMPT, "java's", ours).await;
        guard.unwrap().unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_of_tenure_that_is_not_renewed_ends_for_java_too() {
    for scene in Scene::each().await {
        let java = scene.java_plain("anna");
        let guard = scene.mutex().fixed_lease(SHORT).lock().await.unwrap();
        let asked = Instant::now();
        within(SHORT + PROMPT, "the lock", java.lock()).await.unwrap();
        assert!(!guard.is_held(), "no two believe that they hold");
        assert!(asked.elapsed() > SHORT / 2);
        guard.unlock().await.unwrap_err();
        let is_held = java.is_held().await.unwrap();
        assert!(is_held, "what is Java's is not unlocked by us");
    }
}

#[tokio::test]
async fn a_lease_of_java_that_is_not_renewed_ends_for_tenure_too() {
    for scene in Scene::each().await {
        let java = scene.java_plain("anna");
        java.lock_for(SHORT).await.unwrap();
        let asked = Instant::now();
        let guard = within(SHORT + PROMPT, "the lock", scene.mutex().lock()).await;
        assert!(asked.elapsed() > SHORT / 2);
        assert_holds_nothing(&java).await;
        guard.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_java_process_that_is_killed_keeps_its_lock_no_longer_than_its_lease() {
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, SHORT).await;
    scene.java_plain("anna").lock().await.unwrap();
    let waiting = Waiter::tenure(scene.mutex());
    scene.until_listening("k", 1).await;
    jvm.kill();
    let holder = waiting.holds_within(SHORT + PROMPT, "Tenure").await;
    holder.unlock().await;
}

#[tokio::test]
async fn a_java_process_that_sleeps_past_its_lease_wakes_without_the_lock() {
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, SHORT).await;
    let java = scene.java_plain("anna");
    java.lock().await.unwrap();
    jvm.pause();
    let guard = within(LIMIT, "the lock", scene.mutex().lock()).await;
    jvm.resume();
    assert!(!java.is_held().await.unwrap());
    assert_holds_nothing(&java).await;
    guard.unwrap().unlock().await.unwrap();
}
