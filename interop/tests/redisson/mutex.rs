//! A mutex that Java holds, as Tenure sees it, and the reverse.

use std::time::Duration;

use crate::fixture::{Fixture, PROMPT, assert_holds_nothing, within};

#[tokio::test]
async fn a_tenure_owner_holds_until_both_guards_are_dropped() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        let owner = fixture.client.owner("importer");
        let mutex = fixture.mutex().owned_by(&owner);
        let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
        inner.unlock().await.unwrap();
        assert!(!java.try_lock().await.unwrap());
        outer.unlock().await.unwrap();
        assert!(java.try_lock().await.unwrap());
    }
}

#[tokio::test]
async fn java_sees_a_tenure_lock_as_held_by_another() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        let lease = Duration::from_secs(7);
        let guard = fixture.mutex().lease(lease).lock().await.unwrap();
        assert!(java.is_locked().await.unwrap());
        assert!(!java.is_held().await.unwrap());
        assert_eq!(java.holds().await, Ok(0));
        let left = java.remaining().await.unwrap();
        assert!((1..=7_000).contains(&left), "{left} ms");
        assert_holds_nothing(&java).await;
        guard.verify().await.expect("it is still Tenure's");
        guard.unlock().await.unwrap();
        assert!(!java.is_locked().await.unwrap());
        assert_eq!(java.remaining().await, Ok(-2));
    }
}

#[tokio::test]
async fn keys_with_special_characters_are_equal_on_both_sides() {
    for fixture in Fixture::each().await {
        for key in ["{shop}:7", "shop:{7}", "{shop}:{7}", "größe", "a:b/c*?[x]"] {
            let (anna, berta) = (fixture.java.owner("anna"), fixture.java.owner("berta"));
            anna.plain(key).lock().await.unwrap();
            let ours = tokio::spawn(fixture.client.mutex(key).lock());
            fixture.until_a_connection_listens().await;
            anna.plain(key).unlock().await.unwrap();
            let guard = within(PROMPT, key, ours).await;
            let theirs = berta.plain(key).lock();
            fixture.until_a_connection_listens().await;
            guard.unwrap().unwrap().unlock().await.unwrap();
            within(PROMPT, key, theirs).await.unwrap();
            assert!(
                fixture.client.mutex(key).try_lock().await.unwrap().is_none(),
                "{key}"
            );
            fixture.until("PUBSUB CHANNELS redisson_*", str::is_empty).await;
        }
    }
}
