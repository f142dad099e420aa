//! A mutex in the hands of one side, as the other sees it.

use std::time::Duration;

use crate::scene::{MOMENT, PROMPT, Scene, assert_holds_nothing, is_still_waiting_after, within};

#[tokio::test]
async fn neither_side_takes_what_the_other_holds() {
    for scene in Scene::each().await {
        let java = scene.java_plain("anna");
        let tenure = scene.mutex();
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
        let java = scene.java_plain("anna");
        java.lock().await.unwrap();
        java.lock().await.unwrap();
        let mut waiting = tokio::spawn(scene.mutex().lock());
        scene.until_listening("k", 1).await;
        java.unlock().await.unwrap();
        assert!(is_still_waiting_after(MOMENT, &mut waiting).await);
        assert_eq!(java.holds().await, Ok(1));
        java.unlock().await.unwrap();
        drop(within(PROMPT, "the lock", waiting).await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn an_owner_of_tenure_that_locks_twice_holds_until_both_guards_are_gone() {
    for scene in Scene::each().await {
        let java = scene.java_plain("anna");
        let owner = scene.client.owner("importer");
        let mutex = scene.mutex().owned_by(&owner);
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
        let java = scene.java_plain("anna");
        let lease = Duration::from_secs(7);
        let guard = scene.mutex().lease(lease).lock().await.unwrap();
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
async fn keys_with_braces_and_other_signs_are_the_same_key_to_both() {
    for scene in Scene::each().await {
        for key in ["{shop}:7", "shop:{7}", "{shop}:{7}", "größe", "a:b/c*?[x]"] {
            let (anna, berta) = (scene.java.owner("anna"), scene.java.owner("berta"));
            anna.plain(key).lock().await.unwrap();
            let ours = tokio::spawn(scene.client.mutex(key).lock());
            scene.until_somebody_listens().await;
            anna.plain(key).unlock().await.unwrap();
            let guard = within(PROMPT, key, ours).await;
            let theirs = berta.plain(key).lock();
            scene.until_somebody_listens().await;
            guard.unwrap().unwrap().unlock().await.unwrap();
            within(PROMPT, key, theirs).await.unwrap();
            assert!(
                scene.client.mutex(key).try_lock().await.unwrap().is_none(),
                "{key}"
            );
            scene.until("PUBSUB CHANNELS redisson_*", str::is_empty).await;
        }
    }
}
