//! Java and Tenure share one fair queue: first come, first served, and waiters that have gone do not block the others.

use std::time::Duration;

use tenure::inspect::Query;
use tenure::{Error, HolderId, LockKey};
use tenure_interop::{Driver, Lock, Worker};

use crate::fixture::{Fixture, LEASE, MOMENT, PROMPT, is_still_waiting_after, within};
use crate::waiter::Waiter;

impl Fixture {
    /// Makes a Java thread hold the lock.
    async fn holder(&self) -> Lock {
        let holder = self.java_fair("holder");
        holder.lock().await.unwrap();
        holder
    }

    /// Makes a Java thread wait, as number `place` of the queue.
    async fn java_at(&self, place: usize, name: &str) -> Waiter {
        let waiter = Waiter::java(self.java_fair(name));
        self.until_queued("k", place).await;
        waiter
    }

    /// Makes a Tenure task wait, as number `place` of the queue.
    async fn tenure_at(&self, place: usize, lease: Duration) -> Waiter {
        let waiter = Waiter::tenure(self.mutex().fair().lease(lease));
        self.until_queued("k", place).await;
        waiter
    }
}

#[tokio::test]
async fn a_tenure_waiter_behind_java_outlives_its_lease() {
    // Long enough for a busy machine to renew a claim within it.
    let lease = Duration::from_secs(6);
    let waiter_of = async |driver| {
        let Some(fixture) = Fixture::new(driver).await else {
            return;
        };
        let holder = fixture.holder().await;
        let first = fixture.java_at(1, "first").await;
        let second = fixture.tenure_at(2, lease).await;
        let third = fixture.java_at(3, "third").await;
        // sleep: the holder must hold for longer than the lease of the second waiter.
        tokio::time::sleep(lease * 5 / 4).await;
        holder.unlock().await.unwrap();
        let holder = first.holds_within(PROMPT, "the first").await;
        // With the grant to the first waiter, Java has made the queue deadlines of the others earlier.
        // sleep: the first waiter, too, must hold for longer than the second waiter's lease.
        tokio::time::sleep(lease * 5 / 4).await;
        holder.unlock().await;
        second.holds_within(PROMPT, "the second").await.unlock().await;
        third.holds_within(PROMPT, "the third").await.unlock().await;
        fixture.until_nothing_is_left_of("k").await;
    };
    tokio::join!(waiter_of(Driver::Redisson), waiter_of(Driver::RedissonOld));
}

#[tokio::test]
async fn a_java_thread_that_gives_up_lets_tenure_move_up() {
    for fixture in Fixture::each().await {
        let holder = fixture.holder().await;
        let first = fixture.java_fair("impatient").try_within(Duration::from_secs(4));
        fixture.until_queued("k", 1).await;
        let second = Waiter::tenure(fixture.mutex().fair());
        assert_eq!(first.await, Ok(false));
        fixture.until_queued("k", 1).await;
        holder.unlock().await.unwrap();
        second.holds_within(PROMPT, "Tenure").await.unlock().await;
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn a_cancelled_tenure_waiter_does_not_block_java() {
    for fixture in Fixture::each().await {
        let holder = fixture.holder().await;
        let first = tokio::spawn(fixture.mutex().fair().lock());
        fixture.until_queued("k", 1).await;
        let second = fixture.java_at(2, "second").await;
        first.abort();
        fixture.until_queued("k", 1).await;
        holder.unlock().await.unwrap();
        let holder = second.holds_within(PROMPT, "Java").await;
        let impatient = fixture.mutex().fair().lock_within(Duration::from_secs(2));
        let impatient = impatient.await;
        assert!(matches!(impatient, Err(Error::Timeout)), "{impatient:?}");
        fixture.until_queued("k", 0).await;
        holder.unlock().await;
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn cancelling_the_first_waiter_of_a_free_lock_wakes_java() {
    for fixture in Fixture::each().await {
        let holder = fixture.holder().await;
        // This future is polled for a moment only, so it takes no grant: its client must pass the lock on.
        let mut head = Box::pin(fixture.mutex().fair().lock());
        assert!(is_still_waiting_after(MOMENT, head.as_mut()).await);
        fixture.until_queued("k", 1).await;
        let second = fixture.java_at(2, "second").await;
        holder.unlock().await.unwrap();
        second.holds_within(PROMPT, "Java").await.unlock().await;
        let guard = within(PROMPT, "the first waiter", head).await;
        guard.unwrap().unlock().await.unwrap();
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn tenure_does_not_overtake_a_slow_java_thread() {
    let Some(jvm) = Worker::start(Driver::Redisson) else {
        return;
    };
    let fixture = Fixture::in_jvm(&jvm, LEASE).await;
    let guard = fixture.mutex().fair().lock().await.unwrap();
    let head = fixture.java_at(1, "head").await;
    jvm.pause();
    guard.unlock().await.unwrap();
    let ours = fixture.mutex().try_lock().await.unwrap();
    assert!(ours.is_none(), "free, but not for us");
    let second = fixture.tenure_at(2, LEASE).await;
    jvm.resume();
    head.holds_within(PROMPT, "the head").await.unlock().await;
    second.holds_within(PROMPT, "the second").await.unlock().await;
    fixture.until_nothing_is_left_of("k").await;
}

#[tokio::test]
async fn a_killed_java_waiter_keeps_its_place_until_its_deadline() {
    let (lease, patience) = (Duration::from_secs(3), Duration::from_secs(4));
    let Some(jvm) = Worker::start(Driver::Redisson) else {
        return;
    };
    let fixture = Fixture::in_jvm(&jvm, LEASE).await;
    let guard = fixture.mutex().fair().lease(lease).lock().await.unwrap();
    let dead = fixture.java_fair("dead").try_within(patience);
    fixture.until_queued("k", 1).await;
    let another = fixture.another_client().await;
    let second = Waiter::tenure(another.mutex("k").fair().lease(lease));
    fixture.until_queued("k", 2).await;
    jvm.kill();
    dead.await.unwrap_err();
    guard.unlock().await.unwrap();
    let holder = second.holds_within(lease + patience + PROMPT, "Tenure").await;
    holder.unlock().await;
    fixture.until_nothing_is_left_of("k").await;
}

#[tokio::test]
async fn tenure_sees_holder_and_queue_of_both_sides_in_order() {
    for fixture in Fixture::each().await {
        let foreign = async |name: &str| {
            let id = fixture.java.owner(name).id().await.unwrap();
            HolderId::Foreign(id.into())
        };
        let anna = fixture.java_fair("anna");
        anna.lock().await.unwrap();
        let queue = [
            fixture.java_at(1, "berta").await,
            fixture.tenure_at(2, LEASE).await,
            fixture.java_at(3, "clara").await,
        ];
        let key = LockKey::new("k").unwrap();
        let mut page = fixture.client.inspect(Query::Key(key)).await.unwrap();
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
        // Java threads are asked for their names only now, because a waiting thread answers no other request.
        assert_eq!(first.id, foreign("berta").await);
        assert_eq!(third.id, foreign("clara").await);
    }
}
