//! Our claims on a lock that Java holds or unlocks by force. Plain Redis commands play Java.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{Fairness, HolderId, Loss, Mode, Phase, ReleaseTarget, RenewReply};

#[tokio::test(flavor = "multi_thread")]
async fn a_java_holder_is_waited_for_and_shown_by_its_name() {
    let (fixture, [a, b], key) = Fixture::two().await;
    java_hold(&fixture, &key, 5_000);
    a.waits(&a.claim(&key, Mode::Exclusive)).await;
    let status = b.status(&key).await.expect("it is held");
    let holder = &status.holders[0];
    assert_eq!(holder.id, HolderId::Foreign(Arc::from(JAVA)));
    assert_eq!((holder.token, &holder.label), (None, &None));
    fixture.store.pass(Duration::from_millis(5_001)).await;
    b.finds_free(&key, Mode::Exclusive).await;
}

/// A client of another kind, like Redisson's RSpinLock, may publish nothing when it unlocks.
#[tokio::test(flavor = "multi_thread")]
async fn claims_poll_every_second_behind_a_foreign_holder() {
    for server in [Server::start(), Server::batching()] {
        let (fixture, client, key) = Fixture::one_on(server).await;
        java_hold(&fixture, &key, 60_000);
        for fairness in [Fairness::Unfair, Fairness::Fifo] {
            let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.fairness = fairness);
            let poll_after = poll_after(&client, &claim).await;
            assert_eq!(poll_after, Duration::from_secs(1), "{fairness:?}");
        }
    }
}

/// The shown name of a Java holder evicts this holder, although it looks like the ID of a claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_holder_is_evicted_by_its_shown_name() {
    let (fixture, client, key) = Fixture::one().await;
    for who in [
        ReleaseTarget::Foreign {
            key: key.clone(),
            id: Arc::from(JAVA),
        },
        HolderId::parse(JAVA).on(key.clone()),
        ReleaseTarget::All(key.clone()),
    ] {
        java_hold(&fixture, &key, 60_000);
        let evicted = client.send_release(eviction_of(who)).await;
        let freed: Vec<String> = evicted.freed.iter().map(ToString::to_string).collect();
        assert_eq!(freed, [JAVA]);
        assert!(!fixture.exists(key.as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_unlock_by_java_shows_at_the_next_renewal() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let claim = hold(&a, &key).await;
    fixture.command(&["DEL", key.as_str()]);
    fixture.command(&["PUBLISH", &channel(&key), "0"]);
    let next = hold(&b, &key).await;
    let answer = a.renew(&claim).await;
    assert!(matches!(answer, RenewReply::Gone(Loss::Missing)), "{answer:?}");
    a.release(&claim).await.freed_nothing();
    b.stays_alive(&next, Phase::Granted).await;
}

/// Two unusual holders: Java leaves a lock without expiry if it asks for a lease that the server refuses, and in its
/// transactions a holder's name has a third part.
#[tokio::test(flavor = "multi_thread")]
async fn java_locks_without_expiry_or_in_transactions_are_evictable() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let in_transaction = format!("{JAVA}:0f1e2d3c4b5a69780f1e2d3c4b5a6978");
    for (owner, ends) in [(JAVA, false), (&in_transaction, true)] {
        let key = fixture.store.key();
        fixture.command(&["HSET", key.as_str(), owner, "1"]);
        if ends {
            fixture.command(&["PEXPIRE", key.as_str(), "60000"]);
        }
        let status = client.status(&key).await.expect("it is held");
        assert_eq!(status.holders[0].id.to_string(), owner);
        assert_eq!(status.holders[0].remaining.is_some(), ends);
        let evicted = client
            .send_release(eviction_of(ReleaseTarget::All(key.clone())))
            .await;
        assert_eq!(evicted.freed.len(), 1, "{owner}");
        client.finds_free(&key, Mode::Exclusive).await;
    }
}
