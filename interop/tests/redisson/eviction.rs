//! Tenure evicts and lists Java's holders, and Java unlocks Tenure's locks by force.

use std::time::Duration;

use tenure::inspect::Query;
use tenure::{HolderId, Kind, LockKey, LostCause, ReleaseTarget};

use crate::fixture::{Fixture, PROMPT, assert_holds_nothing, within};

const LEASE: Duration = Duration::from_secs(6);

fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

#[tokio::test]
async fn tenure_notices_a_force_unlock_within_a_third_of_its_lease() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        for java_takes_it in [false, true] {
            let guard = fixture.mutex().lease(LEASE).lock().await.unwrap();
            assert!(java.force_unlock().await.unwrap());
            if java_takes_it {
                java.lock_for(Duration::from_secs(20)).await.unwrap();
            }
            let lost = within(LEASE / 3 + PROMPT, "the loss", guard.lost()).await;
            let by_itself = matches!(lost.cause, LostCause::Expired | LostCause::Unreachable);
            assert!(!by_itself, "{lost:?}");
            guard.unlock().await.unwrap_err();
        }
        let left = java.remaining().await.unwrap();
        assert!(left > 10_000, "its lease is as it was: {left} ms");
        assert!(java.is_held().await.unwrap());
    }
}

#[tokio::test]
async fn an_eviction_by_tenure_makes_the_java_unlock_throw() {
    for fixture in Fixture::each().await {
        let (anna, berta) = (fixture.java.owner("anna"), fixture.java_plain("berta"));
        anna.plain("k").lock().await.unwrap();
        anna.plain("k").lock().await.unwrap();
        let waiting = berta.lock();
        fixture.until_listening("k", 1).await;
        let name = anna.id().await.unwrap();
        let named = HolderId::Foreign(name.into());
        let freed = fixture.client.evict(named.clone().on(key("k"))).await.unwrap();
        assert_eq!(freed, std::slice::from_ref(&named));
        within(PROMPT, "who waited", waiting).await.unwrap();
        assert_holds_nothing(&anna.plain("k")).await;
        assert_eq!(
            fixture
                .client
                .evict(ReleaseTarget::All(key("k")))
                .await
                .unwrap()
                .len(),
            1
        );
        berta.unlock().await.unwrap_err();
        assert_eq!(
            fixture.client.evict(ReleaseTarget::All(key("k"))).await.unwrap(),
            []
        );
        // The evicted thread may lock again at once, and has the same holder ID as before.
        within(PROMPT, "the evicted thread", anna.plain("k").lock())
            .await
            .unwrap();
        let page = fixture.client.inspect(Query::Key(key("k"))).await.unwrap();
        assert_eq!(page.items[0].holders[0].id, named);
        assert!(fixture.mutex().try_lock().await.unwrap().is_none());
        anna.plain("k").unlock().await.unwrap();
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test]
async fn tenure_lists_a_java_holder_and_its_lease() {
    for fixture in Fixture::each().await {
        let anna = fixture.java.owner("anna");
        anna.plain("k").lock_for(Duration::from_secs(9)).await.unwrap();
        let page = fixture.client.inspect(Query::Key(key("k"))).await.unwrap();
        let [lock] = &page.items[..] else {
            panic!("one key: {page:?}")
        };
        assert_eq!((&lock.key, lock.kind), (&key("k"), Kind::Mutex));
        let [holder] = &lock.holders[..] else {
            panic!("one holder: {lock:?}")
        };
        assert_eq!(holder.id, HolderId::Foreign(anna.id().await.unwrap().into()));
        assert_eq!((&holder.label, holder.token), (&None, None));
        let left = holder.remaining.expect("it has a lease").as_secs();
        assert!((7..=9).contains(&left), "{left} s");
        anna.plain("k").unlock().await.unwrap();
        let page = fixture.client.inspect(Query::Key(key("k"))).await.unwrap();
        assert_eq!(page.items, []);
    }
}

/// For 10 ms after an eviction the key is granted to no client. A fair waiter of an older Redisson that is woken in
/// that time would sleep for the rest of the evicted lease, so Tenure wakes it again afterwards.
#[tokio::test]
async fn evicting_the_holder_serves_a_fair_java_waiter_at_once() {
    const LONG: Duration = Duration::from_secs(15);
    for fixture in Fixture::each().await {
        for javas in [true, false] {
            let name = if javas { "java's" } else { "tenure's" };
            let _guard = if javas {
                let anna = fixture.java.owner("anna").fair(name);
                anna.lock_for(LONG).await.unwrap();
                None
            } else {
                let mutex = fixture.client.mutex(name).fair().fixed_lease(LONG);
                Some(mutex.lock().await.unwrap())
            };
            let berta = fixture.java.owner("berta").fair(name);
            let waiting = berta.lock();
            fixture.until_queued(name, 1).await;
            let freed = fixture.client.evict(ReleaseTarget::All(key(name))).await.unwrap();
            assert_eq!(freed.len(), 1, "{name}");
            within(PROMPT, "who waited", waiting).await.unwrap();
            berta.unlock().await.unwrap();
        }
    }
}
