//! One queue for both: first come, first served, whoever it is, and nobody waits for one that has gone.

use std::time::Duration;

use tenure::{Error, HolderId, LockKey, Query};
use tenure_interop::redisson::{Jvm, Lock, Version};

use crate::scene::{LEASE, MOMENT, PROMPT, Scene, is_still_waiting_after, within};
use crate::waiter::Waiter;

impl Scene {
    /// A thread of Java that holds the lock.
    async fn holder(&self) -> Lock {
        let holder = self.java_fair("holder");
        holder.lock().await.unwrap();
        holder
    }

    /// A thread of Java that stands at that place of the queue.
    async fn java_at(&self, place: usize, name: &str) -> Waiter {
        let waiter = Waiter::java(self.java_fair(name));
        self.until_queued("k", place).await;
        waiter
    }

    /// A task of Tenure that stands at that place of the queue.
    async fn tenure_at(&self, place: usize, lease: Duration) -> Waiter {
        let waiter = Waiter::tenure(self.mutex().fair().lease(lease));
        self.until_queued("k", place).await;
        waiter
    }
}

#[tokio::test]
async fn both_sides_are_served_in_the_order_in_which_they_came() {
    const QUEUE: &str = "jttjtjjt";
    for scene in Scene::each().await {
        let another = scene.another_client().await;
        let holder = scene.holder().await;
        let mut queue = Vec::new();
        for (place, side) in (1..).zip(QUEUE.chars()) {
            queue.push(match side {
                'j' => Waiter::java(scene.java_fair(&format!("thread-{place}"))),
                _ if place % 2 == 0 => Waiter::tenure(scene.mutex().fair()),
                _ => Waiter::tenure(another.mutex("k").fair()),
            });
            scene.until_queued("k", place).await;
        }
        holder.unlock().await.unwrap();
        for (place, waiter) in (1..).zip(queue) {
            // Had another been served, this one would wait for it in vain.
            let holder = waiter.holds_within(PROMPT, &format!("number {place}")).await;
            holder.unlock().await;
        }
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn a_waiter_of_tenure_keeps_its_place_beyond_its_lease_and_behind_java() {
    let lease = Duration::from_secs(1);
    let scene_of = async |version| {
        let Some(scene) = Scene::new(version).await else {
            return;
        };
        let holder = scene.holder().await;
        let first = scene.java_at(1, "first").await;
        let second = scene.tenure_at(2, lease).await;
        let third = scene.java_at(3, "third").await;
        // sleep: the holder holds for longer than the lease of the second.
        tokio::time::sleep(lease * 2).await;
        holder.unlock().await.unwrap();
        let holder = first.holds_within(PROMPT, "the first").await;
        // sleep: so does the first, whose script has brought the deadlines of the others forward.
        tokio::time::sleep(lease * 2).await;
        holder.unlock().await;
        second.holds_within(PROMPT, "the second").await.unlock().await;
        third.holds_within(PROMPT, "the third").await.unlock().await;
        scene.until_nothing_is_left_of("k").await;
    };
    tokio::join!(scene_of(Version::Newest), scene_of(Version::Old));
}

#[tokio::test]
async fn a_java_thread_that_gives_up_leaves_its_place_to_tenure() {
    for scene in Scene::each().await {
        let holder = scene.holder().await;
        let first = scene
            .java_fair("impatient")
            .try_within(Duration::from_millis(500));
        scene.until_queued("k", 1).await;
        let second = Waiter::tenure(scene.mutex().fair());
        assert_eq!(first.await, Ok(false));
        scene.until_queued("k", 1).await;
        holder.unlock().await.unwrap();
        second.holds_within(PROMPT, "Tenure").await.unlock().await;
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn a_cancelled_waiter_of_tenure_leaves_no_ghost_before_java() {
    for scene in Scene::each().await {
        let holder = scene.holder().await;
        let first = tokio::spawn(scene.mutex().fair().lock());
        scene.until_queued("k", 1).await;
        let second = scene.java_at(2, "second").await;
        first.abort();
        scene.until_queued("k", 1).await;
        holder.unlock().await.unwrap();
        let holder = second.holds_within(PROMPT, "Java").await;
        let impatient = scene.mutex().fair().lock_within(Duration::from_millis(50));
        let impatient = impatient.await;
        assert!(matches!(impatient, Err(Error::Timeout)), "{impatient:?}");
        scene.until_queued("k", 0).await;
        holder.unlock().await;
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn java_is_told_when_the_head_of_the_queue_is_cancelled_while_the_lock_is_free() {
    for scene in Scene::each().await {
        let holder = scene.holder().await;
        // Polled once, and then left alone: its client must give back what is granted to it.
        let mut head = Box::pin(scene.mutex().fair().lock());
        assert!(is_still_waiting_after(MOMENT, head.as_mut()).await);
        scene.until_queued("k", 1).await;
        let second = scene.java_at(2, "second").await;
        holder.unlock().await.unwrap();
        second.holds_within(PROMPT, "Java").await.unlock().await;
        let guard = within(PROMPT, "who was asked again", head).await;
        guard.unwrap().unlock().await.unwrap();
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn nobody_of_tenure_goes_past_a_java_thread_that_is_slow_to_take_its_turn() {
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, LEASE).await;
    let guard = scene.mutex().fair().lock().await.unwrap();
    let head = scene.java_at(1, "head").await;
    jvm.pause();
    guard.unlock().await.unwrap();
    let ours = scene.mutex().try_lock().await.unwrap();
    assert!(ours.is_none(), "free, but not for us");
    let second = scene.tenure_at(2, LEASE).await;
    jvm.resume();
    head.holds_within(PROMPT, "the head").await.unlock().await;
    second.holds_within(PROMPT, "the second").await.unlock().await;
    scene.until_nothing_is_left_of("k").await;
}

#[tokio::test]
async fn a_waiting_java_thread_that_is_killed_is_waited_for_until_its_own_deadline() {
    let (lease, patience) = (Duration::from_secs(1), Duration::from_secs(2));
    let Some(jvm) = Jvm::start(Version::Newest) else {
        return;
    };
    let scene = Scene::in_jvm(&jvm, LEASE).await;
    let guard = scene.mutex().fair().lease(lease).lock().await.unwrap();
    let dead = scene.java_fair("dead").try_within(patience);
    scene.until_queued("k", 1).await;
    let another = scene.another_client().await;
    let second = Waiter::tenure(another.mutex("k").fair().lease(lease));
    scene.until_queued("k", 2).await;
    jvm.kill();
    dead.await.unwrap_err();
    guard.unlock().await.unwrap();
    let holder = second.holds_within(lease + patience + PROMPT, "Tenure").await;
    holder.unlock().await;
    scene.until_nothing_is_left_of("k").await;
}

#[tokio::test]
async fn tenure_sees_holder_and_queue_of_both_sides_in_order() {
    for scene in Scene::each().await {
        let foreign = async |name: &str| {
            let id = scene.java.owner(name).id().await.unwrap();
            HolderId::Foreign(id.into())
        };
        let anna = scene.java_fair("anna");
        anna.lock().await.unwrap();
        let queue = [
            scene.java_at(1, "berta").await,
            scene.tenure_at(2, LEASE).await,
            scene.java_at(3, "clara").await,
        ];
        let key = LockKey::new("k").unwrap();
        let mut page = scene.client.inspect(Query::Key(key)).await.unwrap();
        let lock = page.items.pop().expect("it is held");
        assert_eq!(lock.holders[0].id, foreign("anna").await);
        let waiters = lock.waiters.expect("the queue is known");
        let [first, second, third] = &waiters[..] else {
            panic!("three wait: {waiters:?}");
        };
        assert!(matches!(second.id, HolderId::Claim(_)), "{second:?}");
        anna.unlock().await.unwrap();
        for waiter in queue {
            waiter.holds_within(PROMPT, "each").await.unlock().await;
        }
        // A thread that waits answers nothing else.
        assert_eq!(first.id, foreign("berta").await);
        assert_eq!(third.id, foreign("clara").await);
    }
}
