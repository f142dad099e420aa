//! What Redisson leaves in Redis, step by step: the format that Tenure writes too. If a release changes it, these tests
//! tell.

use std::time::Duration;

use tenure_interop::redisson::Version;

use crate::scene::{LEASE, MOMENT, PROMPT, Scene, is_still_waiting_after, within};

const QUEUE: &str = "redisson_lock_queue:{k}";
const TIMEOUT: &str = "redisson_lock_timeout:{k}";

/// The time left of a key, which must be nearly `lease`.
fn assert_lease(scene: &Scene, key: &str, lease: Duration) {
    let left: u128 = scene.ask(&format!("PTTL {key}")).parse().unwrap();
    let whole = lease.as_millis();
    assert!((whole - 2_000..=whole).contains(&left), "{left} ms");
}

#[tokio::test]
async fn a_mutex_is_a_hash_of_the_holder_and_its_holds_under_a_lease() {
    for scene in Scene::each().await {
        let anna = scene.java.owner("anna");
        let (id, lock) = (anna.id().await.unwrap(), anna.plain("k"));
        lock.lock().await.unwrap();
        assert_eq!(scene.ask("KEYS *"), "k");
        assert_eq!(scene.ask("HGETALL k"), format!("{id}\n1"));
        assert_lease(&scene, "k", LEASE);
        lock.lock().await.unwrap();
        assert_eq!(scene.ask("HGETALL k"), format!("{id}\n2"));
        lock.unlock().await.unwrap();
        assert_eq!(scene.ask("HGETALL k"), format!("{id}\n1"));
        lock.unlock().await.unwrap();
        scene.until("KEYS *", str::is_empty).await;
        lock.lock_for(Duration::from_secs(5)).await.unwrap();
        assert_lease(&scene, "k", Duration::from_secs(5));
    }
}

#[tokio::test]
async fn fair_waiters_stand_in_a_list_and_a_sorted_set_of_deadlines_each_with_a_channel() {
    for scene in Scene::each().await {
        let [anna, berta, clara] = ["anna", "berta", "clara"].map(|name| scene.java.owner(name));
        anna.fair("k").lock().await.unwrap();
        assert_eq!(scene.ask("KEYS *"), "k");
        let second = berta.fair("k").lock();
        scene.until_queued("k", 1).await;
        let third = clara.fair("k").try_within(Duration::from_secs(600));
        scene.until_queued("k", 2).await;
        let (b, c) = (queued(&scene, 0), queued(&scene, 1));
        let score = |id: &str| -> i64 { scene.ask(&format!("ZSCORE {TIMEOUT} {id}")).parse().unwrap() };
        let before = (score(&b), score(&c));
        assert_eq!(before.1 - before.0, 600_000, "the time that it waits at most");
        for key in [QUEUE, TIMEOUT] {
            assert_eq!(scene.ask(&format!("PTTL {key}")), "-1");
        }
        anna.fair("k").unlock().await.unwrap();
        second.await.unwrap();
        assert_eq!(scene.ask("HGETALL k"), format!("{b}\n1"));
        assert_eq!(before.1 - score(&c), 300_000, "the new holder's share goes");
        berta.fair("k").unlock().await.unwrap();
        assert!(third.await.unwrap());
        clara.fair("k").unlock().await.unwrap();
        scene.until("KEYS *", str::is_empty).await;
        scene.until("PUBSUB CHANNELS", str::is_empty).await;
    }
}

/// Who stands at that place of the queue.
fn queued(scene: &Scene, place: usize) -> String {
    scene.ask(&format!("LINDEX {QUEUE} {place}"))
}

#[tokio::test]
async fn a_fair_lock_and_a_plain_one_of_one_name_know_nothing_of_each_other() {
    for scene in Scene::each().await {
        let [anna, berta, clara] = ["anna", "berta", "clara"].map(|name| scene.java.owner(name));
        anna.fair("k").lock_for(PROMPT).await.unwrap();
        let mut unfair = berta.plain("k").lock();
        scene.until_listening("k", 1).await;
        anna.fair("k").unlock().await.unwrap();
        assert!(
            is_still_waiting_after(MOMENT, &mut unfair).await,
            "nobody tells it"
        );
        within(PROMPT * 2, "the end of the lease", unfair).await.unwrap();
        let interrupted = clara.fair("k").lock();
        scene.until_queued("k", 1).await;
        clara.fair("k").interrupt().await.unwrap();
        interrupted.await.unwrap_err();
        berta.plain("k").unlock().await.unwrap();
        assert_eq!(
            anna.fair("k").try_lock().await,
            Ok(false),
            "the queue is not empty"
        );
        assert_eq!(anna.plain("k").try_lock().await, Ok(true), "what is that to it");
    }
}

#[tokio::test]
async fn unlocking_a_free_fair_lock_throws_nothing() {
    for scene in Scene::each().await {
        let anna = scene.java.owner("anna");
        anna.fair("k").unlock().await.unwrap();
        anna.plain("k").unlock().await.unwrap_err();
    }
}

#[tokio::test]
async fn an_interrupted_waiter_stays_in_the_queue_and_holds_everybody_up() {
    for scene in Scene::each().await {
        let lock = |name: &str| scene.java_fair(name);
        lock("anna").lock().await.unwrap();
        let interrupted = lock("berta").lock();
        scene.until(&format!("LLEN {QUEUE}"), |n| n == "1").await;
        lock("berta").interrupt().await.unwrap();
        // Which exception it is depends on whether it has subscribed by then.
        interrupted.await.unwrap_err();
        assert_eq!(scene.ask(&format!("LLEN {QUEUE}")), "1");
        lock("anna").unlock().await.unwrap();
        scene.ask("CONFIG RESETSTAT");
        assert_eq!(
            lock("clara").try_within(Duration::from_millis(500)).await,
            Ok(false)
        );
        let calls = scripts_called(&scene);
        match scene.java.jvm().version() {
            Version::Newest => assert!(calls > 100, "it asks without a pause: {calls}"),
            Version::Old => assert!(calls < 10, "it sleeps: {calls}"),
        }
    }
}

/// How many scripts were run since the statistics were reset.
fn scripts_called(scene: &Scene) -> u64 {
    let statistics = scene.ask("INFO commandstats");
    let counts = statistics.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let script = command.starts_with("eval");
        script.then(|| rest.split(',').next()?.parse::<u64>().ok())?
    });
    counts.sum()
}
