//! Leases and watchdogs of Java and Tenure: a renewed lock is kept, and a dead holder blocks no longer than its lease.

use std::time::{Duration, Instant};

use tenure_interop::{Driver, Worker};

use crate::fixture::{Fixture, LIMIT, PROMPT, assert_holds_nothing, within};

const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn an_unrenewed_lease_of_tenure_ends_for_java() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        let guard = fixture.mutex().fixed_lease(SHORT).lock().await.unwrap();
        let asked = Instant::now();
        within(SHORT + PROMPT, "the lock", java.lock()).await.unwrap();
        assert!(!guard.is_held(), "at most one side holds");
        assert!(asked.elapsed() > SHORT / 2);
        guard.unlock().await.unwrap_err();
        let is_held = java.is_held().await.unwrap();
        assert!(is_held, "what is Java's is not unlocked by us");
    }
}

#[tokio::test]
async fn an_unrenewed_lease_of_java_ends_for_tenure() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        java.lock_for(SHORT).await.unwrap();
        let asked = Instant::now();
        let guard = within(SHORT + PROMPT, "the lock", fixture.mutex().lock()).await;
        assert!(asked.elapsed() > SHORT / 2);
        assert_holds_nothing(&java).await;
        guard.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_java_process_wakes_without_its_expired_lock() {
    let Some(jvm) = Worker::start(Driver::Redisson) else {
        return;
    };
    let fixture = Fixture::in_jvm(&jvm, SHORT).await;
    let java = fixture.java_plain("anna");
    java.lock().await.unwrap();
    jvm.pause();
    let guard = within(LIMIT, "the lock", fixture.mutex().lock()).await;
    jvm.resume();
    assert!(!java.is_held().await.unwrap());
    assert_holds_nothing(&java).await;
    guard.unwrap().unlock().await.unwrap();
}
