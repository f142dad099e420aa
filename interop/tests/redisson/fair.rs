//! One queue for both: first come, first served, whoever it is, and nobody waits for one that has gone.

use std::time::Duration;

use tenure::{Client, Error, Guard, HolderId, LockKey, Query};
use tenure_interop::redisson::{Jvm, Lock, Reply, Version};
use tokio::task::JoinHandle;

use crate::scene::{LEASE, MOMENT, PROMPT, Scene, is_still_waiting_after, within};

/// One in the queue.
enum Waiter {
    Java(Lock, Reply<()>),
    Tenure(JoinHandle<Result<Guard, Error>>),
}

/// Who holds.
enum Holder {
    Java(Lock),
    Tenure(Guard),
}

impl Waiter {
    fn java(scene: &Scene, name: &str) -> Waiter {
        let lock = scene.java.owner(name).fair("k");
        let reply = lock.lock();
        Waiter::Java(lock, reply)
    }

    fn tenure(client: &Client, lease: Duration) -> Waiter {
        Waiter::Tenure(tokio::spawn(client.mutex("k").fair().lease(lease).lock()))
    }

    async fn holds_within(self, limit: Duration, who: &str) -> Holder {
        match self {
            Waiter::Java(lock, reply) => {
                within(limit, who, reply).await.0.unwrap();
                Holder::Java(lock)
            }
            Waiter::Tenure(task) => Holder::Tenure(within(limit, who, task).await.0.unwrap().unwrap()),
        }
    }
}

impl Holder {
    async fn unlock(self) {
        match self {
            Holder::Java(lock) => lock.unlock().await.unwrap(),
            Holder::Tenure(guard) => guard.unlock().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn both_sides_are_served_in_the_order_in_which_they_came() {
    const QUEUE: &str = "jttjtjjt";
    for scene in Scene::each().await {
        let clients = [scene.tenure().await, scene.tenure().await];
        let holder = scene.java.owner("holder").fair("k");
        holder.lock().await.unwrap();
        let mut queue = Vec::new();
        for (place, side) in (1..).zip(QUEUE.chars()) {
            queue.push(match side {
                'j' => Waiter::java(&scene, &format!("thread-{place}")),
                _ => Waiter::tenure(&clients[place % 2], LEASE),
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
        let client = scene.tenure().await;
        let holder = scene.java.owner("holder").fair("k");
        holder.lock().await.unwrap();
        let first = Waiter::java(&scene, "first");
        scene.until_queued("k", 1).await;
        let second = Waiter::tenure(&client, lease);
        scene.until_queued("k", 2).await;
        let third = Waiter::java(&scene, "third");
        scene.until_queued("k", 3).await;
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
        let client = scene.tenure().await;
        let holder = scene.java.owner("holder").fair("k");
        holder.lock().await.unwrap();
        let impatient = scene.java.owner("impatient").fair("k");
        let first = impatient.try_within(Duration::from_millis(500));
        scene.until_queued("k", 1).await;
        let second = Waiter::tenure(&client, LEASE);
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
        let client = scene.tenure().await;
        let holder = scene.java.owner("holder").fair("k");
        holder.lock().await.unwrap();
        let Waiter::Tenure(first) = Waiter::tenure(&client, LEASE) else {
            unreachable!("it is Tenure's");
        };
        scene.until_queued("k", 1).await;
        let second = Waiter::java(&scene, "second");
        scene.until_queued("k", 2).await;
        first.abort();
        scene.until_queued("k", 1).await;
        holder.unlock().await.unwrap();
        let holder = second.holds_within(PROMPT, "Java").await;
        let impatient = client
            .mutex("k")
            .fair()
            .lock_within(Duration::from_millis(50))
            .await;
        assert!(matches!(impatient, Err(Error::Timeout)), "{impatient:?}");
        scene.until_queued("k", 0).await;
        holder.unlock().await;
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn java_is_told_when_the_head_of_the_queue_is_cancelled_while_the_lock_is_free() {
    for scene in Scene::each().await {
        let client = scene.tenure().await;
        let holder = scene.java.owner("holder").fair("k");
        holder.lock().await.unwrap();
        // Polled once, and then left alone: its client must give back what is granted to it.
        let mut head = Box::pin(client.mutex("k").fair().lock());
        assert!(is_still_waiting_after(MOMENT, head.as_mut()).await);
        scene.until_queued("k", 1).await;
        let second = Waiter::java(&scene, "second");
        scene.until_queued("k", 2).await;
        holder.unlock().await.unwrap();
        second.holds_within(PROMPT, "Java").await.unlock().await;
        let (guard, _) = within(PROMPT, "who was asked again", head).await;
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
    let client = scene.tenure().await;
    let guard = client.mutex("k").fair().lock().await.unwrap();
    let head = Waiter::java(&scene, "head");
    scene.until_queued("k", 1).await;
    jvm.pause();
    guard.unlock().await.unwrap();
    assert!(
        client.mutex("k").try_lock().await.unwrap().is_none(),
        "free, but not for us"
    );
    let second = Waiter::tenure(&client, LEASE);
    scene.until_queued("k", 2).await;
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
    let client = scene.tenure().await;
    let guard = client.mutex("k").fair().lease(lease).lock().await.unwrap();
    let dead = scene.java.owner("dead").fair("k").try_within(patience);
    scene.until_queued("k", 1).await;
    let second = Waiter::tenure(&scene.tenure().await, lease);
    scene.until_queued("k", 2).await;
    jvm.kill();
    dead.await.unwrap_err();
    guard.unlock().await.unwrap();
    second
        .holds_within(lease + patience + PROMPT, "Tenure")
        .await
        .unlock()
        .await;
    scene.until_nothing_is_left_of("k").await;
}

#[tokio::test]
async fn tenure_sees_holder_and_queue_of_both_sides_in_order() {
    for scene in Scene::each().await {
        let client = scene.tenure().await;
        let anna = scene.java.owner("anna");
        anna.fair("k").lock().await.unwrap();
        let java = [scene.java.owner("berta"), scene.java.owner("clara")];
        let names = [java[0].id().await.unwrap(), java[1].id().await.unwrap()];
        let mut queue = vec![Waiter::java(&scene, "berta")];
        scene.until_queued("k", 1).await;
        queue.push(Waiter::tenure(&client, LEASE));
        scene.until_queued("k", 2).await;
        queue.push(Waiter::java(&scene, "clara"));
        scene.until_queued("k", 3).await;
        let key = LockKey::new("k").unwrap();
        let mut page = client.inspect(Query::Key(key)).await.unwrap();
        let lock = page.items.pop().expect("it is held");
        assert_eq!(
            lock.holders[0].id,
            HolderId::Foreign(anna.id().await.unwrap().into())
        );
        let waiters = lock.waiters.expect("the queue is known");
        let [first, second, third] = &waiters[..] else {
            panic!("three wait: {waiters:?}");
        };
        assert_eq!(first.id, HolderId::Foreign(names[0].as_str().into()));
        assert!(matches!(second.id, HolderId::Claim(_)), "{second:?}");
        assert_eq!(third.id, HolderId::Foreign(names[1].as_str().into()));
        anna.fair("k").unlock().await.unwrap();
        for waiter in queue {
            waiter.holds_within(PROMPT, "each").await.unlock().await;
        }
    }
}
