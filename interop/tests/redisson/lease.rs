//! Leases and watchdogs side by side: who renews keeps, and who is gone is waited for no longer than its lease.

use std::time::Duration;

use tenure_interop::redisson::{Jvm, Version};

use crate::scene::{LIMIT, PROMPT, Scene, is_still_waiting_after, within};

const SHORT: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn both_watchdogs_keep_what_is_theirs_beyond_its_lease() {
    for version in Version::ALL {
        let Some(jvm) = Jvm::shared(version) else { return };
        let scene = Scene::in_jvm(&jvm, SHORT).await;
        let client = scene.tenure().await;
        let java = |name: &str, key: &str| scene.java.owner(name).plain(key);
        java("anna", "java's").lock().await.unwrap();
        let guard = client.mutex("ours").lease(SHORT).lock().await.unwrap();
        let mut ours = tokio::spawn(client.mutex("java's").lease(SHORT).lock());
        let mut theirs = java("berta", "ours").lock();
        let both = async {
            tokio::select! { _ = &mut ours => (), _ = &mut theirs => () }
        };
        assert!(is_still_waiting_after(SHORT * 2, Box::pin(both)).await);
        guard.unlock().await.unwrap();
        java("anna", "java's").unlock().await.unwrap();
        within(PROMPT, "ours", theirs).await.0.unwrap();
        let (guard, _) = within(PROMPT, "java's", ours).await;
        guard.unwrap().unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_lease_of_tenure_that_is_not_renewed_ends_for_java_too() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let guard = client.mutex("k").fixed_lease(SHORT).lock().await.unwrap();
        let (_, took) = within(SHORT + PROMPT, "the lock", java.lock()).await;
        assert!(!guard.is_held(), "no two believe that they hold");
        assert!(took > SHORT / 2, "{took:?}");
        guard.unlock().await.unwrap_err();
        assert!(
            java.is_held().await.unwrap(),
            "what is Java's is not unlocked by us"
        );
    }
}

#[tokio::test]
async fn a_lease_of_java_that_is_not_renewed_ends_for_tenure_too() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        java.lock_for(SHORT).await.unwrap();
        let (guard, took) = within(SHORT + PROMPT, "the lock", client.mutex("k").lock()).await;
        assert!(took > SHORT / 2, "{took:?}");
        let error = java.unlock().await.unwrap_err();
        assert_eq!(error.name, "IllegalMonitorStateException");
        guard.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_java_process_that_is_killed_keeps_its_lock_no_longer_than_its_lease() {
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, SHORT).await;
    let client = scene.tenure().await;
    scene.java.owner("anna").plain("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    scene.until_listening("k", 1).await;
    jvm.kill();
    let (guard, _) = within(SHORT + PROMPT, "the lock", waiting).await;
    guard.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_java_process_that_sleeps_past_its_lease_wakes_without_the_lock() {
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, SHORT).await;
    let client = scene.tenure().await;
    let java = scene.java.owner("anna").plain("k");
    java.lock().await.unwrap();
    jvm.pause();
    let (guard, _) = within(LIMIT, "the lock", client.mutex("k").lock()).await;
    jvm.resume();
    assert!(!java.is_held().await.unwrap());
    assert_eq!(
        java.unlock().await.unwrap_err().name,
        "IllegalMonitorStateException"
    );
    guard.unwrap().unlock().await.unwrap();
}
