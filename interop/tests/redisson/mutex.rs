//! A mutex in the hands of one side, as the other sees it.

use std::time::Duration;

use crate::scene::{MOMENT, PROMPT, Scene, is_still_waiting_after, within};

#[tokio::test]
async fn neither_side_takes_what_the_other_holds() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let tenure = scene.tenure().await.mutex("k");
        java.lock().await.unwrap();
        assert!(tenure.try_lock().await.unwrap().is_none());
        java.unlock().await.unwrap();
        let guard = tenure.try_lock().await.unwrap().expect("it is free");
        assert!(!java.try_lock().await.unwrap());
        guard.unlock().await.unwrap();
        assert!(java.try_lock().await.unwrap());
    }
}

#[tokio::test]
async fn a_java_thread_that_locks_twice_holds_until_its_second_unlock() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        java.lock().await.unwrap();
        java.lock().await.unwrap();
        let mut waiting = tokio::spawn(client.mutex("k").lock());
        scene.until_listening("k", 1).await;
        java.unlock().await.unwrap();
        assert!(is_still_waiting_after(MOMENT, &mut waiting).await);
        assert_eq!(java.holds().await, Ok(1));
        java.unlock().await.unwrap();
        let (guard, _) = within(PROMPT, "the lock", waiting).await;
        drop(guard);
    }
}

#[tokio::test]
async fn an_owner_of_tenure_that_locks_twice_holds_until_both_guards_are_gone() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let owner = client.owner("importer");
        let mutex = client.mutex("k").owned_by(&owner);
        let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
        inner.unlock().await.unwrap();
        assert!(!java.try_lock().await.unwrap());
        outer.unlock().await.unwrap();
        assert!(java.try_lock().await.unwrap());
    }
}

#[tokio::test]
async fn java_sees_the_lock_of_tenure_as_that_of_another() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let lease = Duration::from_secs(7);
        let guard = client.mutex("k").lease(lease).lock().await.unwrap();
        assert!(java.is_locked().await.unwrap());
        assert!(!java.is_held().await.unwrap());
        assert!(!java.is_held_by(1).await.unwrap());
        assert_eq!(java.holds().await, Ok(0));
        let left = java.remaining().await.unwrap();
        assert!((1..=7_000).contains(&left), "{left} ms");
        let error = java.unlock().await.unwrap_err();
        assert_eq!(error.name, "IllegalMonitorStateException");
        guard
            .verify()
            .await
            .expect("what is not Java's is not unlocked by it");
        guard.unlock().await.unwrap();
        assert!(!java.is_locked().await.unwrap());
        assert_eq!(java.remaining().await, Ok(-2));
    }
}

#[tokio::test]
async fn keys_with_braces_and_other_signs_are_the_same_key_to_both() {
    for scene in Scene::each().await {
        let client = scene.tenure().await;
        for key in ["{shop}:7", "shop:{7}", "{shop}:{7}", "größe", "a:b/c*?[x]"] {
            let (anna, berta) = (scene.java.owner("anna"), scene.java.owner("berta"));
            anna.plain(key).lock().await.unwrap();
            let ours = tokio::spawn(client.mutex(key).lock());
            scene.until_somebody_listens().await;
            anna.plain(key).unlock().await.unwrap();
            let (guard, _) = within(PROMPT, key, ours).await;
            let theirs = berta.plain(key).lock();
            scene.until_somebody_listens().await;
            guard.unwrap().unwrap().unlock().await.unwrap();
            within(PROMPT, key, theirs).await.0.unwrap();
            assert!(client.mutex(key).try_lock().await.unwrap().is_none(), "{key}");
            scene.until("PUBSUB CHANNELS redisson_*", str::is_empty).await;
        }
    }
}
