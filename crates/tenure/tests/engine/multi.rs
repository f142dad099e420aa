//! Multi-locks acquire all members or none, and hold none while they wait.

use std::time::Duration;

use futures_util::future::try_join_all;
use tenure::{Error, Lock, multi};

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, assert_error, assert_transient, pass, poll_once, settle};

#[tokio::test(start_paused = true)]
async fn a_waiting_multi_lock_holds_no_member() {
    let (fixture, [here, elsewhere]) = Fixture::clients();
    let busy = elsewhere.mutex("b").lock().await.unwrap();
    let all = multi(["a", "b", "c"].map(|key| here.mutex(key)));
    let mut waiting = Box::pin(all.lock());
    for _ in 0..20 {
        assert!(poll_once(&mut waiting).await.is_none());
        pass(10 * MS).await;
    }
    assert!(fixture.is_free("a").await && fixture.is_free("c").await);
    busy.unlock().await.unwrap();
    let guards = waiting.await.unwrap();
    let keys = guards.members().iter().map(|guard| guard.key().as_str());
    assert_eq!(keys.collect::<Vec<_>>(), ["a", "b", "c"]);
    guards.unlock().await.unwrap();
    for key in ["a", "b", "c"] {
        fixture.freed(key, MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_takes_all_or_nothing() {
    let (fixture, [client]) = Fixture::clients();
    let busy = client.mutex("b").lock().await.unwrap();
    let all = multi([client.mutex("a"), client.mutex("b")]);
    assert!(all.try_lock().await.unwrap().is_none());
    settle().await;
    assert!(fixture.is_free("a").await);
    busy.unlock().await.unwrap();
    assert!(all.try_lock().await.unwrap().is_some());
}

/// R31: two multi-locks with opposite order of members neither deadlock nor livelock.
#[tokio::test(start_paused = true)]
async fn multi_locks_in_opposite_order_all_get_their_turn() {
    let fixture = Fixture::new();
    let mut tasks = Vec::new();
    for n in 0..8 {
        let client = fixture.client();
        let mut keys = ["a", "b", "c"];
        keys.rotate_left(n % 3);
        if n % 2 == 0 {
            keys.reverse();
        }
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let all = multi(keys.map(|key| client.mutex(key)));
                let guards = all.lock().await.unwrap();
                pass(MS).await;
                guards.unlock().await.unwrap();
            }
        }));
    }
    let all = tokio::time::timeout(60 * SECOND, try_join_all(tasks)).await;
    all.expect("they block each other").unwrap();
}

#[tokio::test(start_paused = true)]
async fn losing_one_member_loses_the_multi_lock() {
    let (fixture, [client]) = Fixture::clients();
    let members = [client.mutex("a"), client.mutex("b").fixed_lease(SECOND)];
    let guards = multi(members).lock().await.unwrap();
    let before = tokio::time::Instant::now();
    let work = guards.while_held(std::future::pending::<()>());
    assert!(work.await.is_err());
    assert!(before.elapsed() < SECOND, "at the deadline of that member");
    assert!(!guards.is_held());
    assert_error!(guards.unlock().await, Error::Lost(_));
    fixture.freed("a", MS).await;
}

/// R31: one member was lost, which fails the unlock. The unlock still waits until the other member is released.
#[tokio::test(start_paused = true)]
async fn a_failed_unlock_of_one_member_releases_the_others() {
    let (fixture, slow, backend) = Fixture::with_faulty_backend();
    let members = [fixture.client().mutex("a").fixed_lease(SECOND), slow.mutex("b")];
    let guards = multi(members).lock().await.unwrap();
    guards.lost().await;
    backend.control(Verb::Release).hold_before();
    let unlock = tokio::spawn(guards.unlock());
    pass(10 * MS).await;
    assert!(!fixture.is_free("b").await && !unlock.is_finished());
    backend.control(Verb::Release).resume();
    assert_error!(unlock.await.unwrap(), Error::Lost(_));
    let is_free = fixture.is_free("b").await;
    assert!(is_free, "the answer came before the release");
}

#[tokio::test(start_paused = true)]
async fn members_may_be_of_every_kind_and_are_named_once() {
    let (_, [client]) = Fixture::clients();
    let members = || {
        [
            Lock::from(client.mutex("m")),
            client.rwlock("r").reader(),
            client.rwlock("w").writer(),
            client.semaphore("s", 3).permits(2),
        ]
    };
    let guards = multi(members()).lock().await.unwrap();
    assert!(client.rwlock("r").try_read().await.unwrap().is_some());
    let permits = client.semaphore("s", 3).try_acquire_many(2).await;
    assert!(permits.unwrap().is_none());
    guards.unlock().await.unwrap();
    let twice = members().into_iter().chain([client.rwlock("r").writer()]);
    assert_error!(multi(twice).lock_within(SECOND).await, Error::Invalid(_));
    assert_error!(multi(Vec::<Lock>::new()).try_lock().await, Error::Invalid(_));
}

/// If the store does not answer, the error is transient. It is not `Timeout`, which would mean that a member is busy.
/// One limit holds for all ten members together.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_of_a_silent_store_is_not_busy() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Acquire).hold_before();
    for limit in [MS, 200 * MS, SECOND] {
        let all = multi((0..10).map(|n| client.mutex(format!("m{n}"))));
        let before = tokio::time::Instant::now();
        assert_transient(&all.lock_within(limit).await, limit);
        assert!(before.elapsed() < limit + 10 * MS, "{limit:?}");
    }
    backend.control(Verb::Acquire).resume();
    let all = multi([client.mutex("k")]);
    assert!(all.lock_within(Duration::MAX).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_multi_wait_that_times_out_leaves_nothing() {
    let (fixture, [client]) = Fixture::clients();
    let _busy = client.mutex("b").lock().await.unwrap();
    let all = multi([client.mutex("a"), client.mutex("b")]);
    assert_error!(all.lock_within(SECOND).await, Error::Timeout);
    settle().await;
    assert!(fixture.is_free("a").await);
}

#[tokio::test(start_paused = true)]
async fn a_member_lost_during_the_search_is_acquired_again() {
    let (fixture, slow, backend) = Fixture::with_faulty_backend();
    let members = [fixture.client().mutex("a").fixed_lease(SECOND), slow.mutex("b")];
    backend.control(Verb::Acquire).delay(2 * SECOND);
    let waiting = tokio::spawn(multi(members).lock());
    pass(3 * SECOND).await;
    assert!(!waiting.is_finished(), "one of them is lost by then");
    backend.control(Verb::Acquire).delay(Duration::ZERO);
    let guards = waiting.await.unwrap().unwrap();
    assert!(guards.is_held());
    guards.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_multi_lock_says_which_member() {
    let client = Fixture::new().client();
    let members = [client.mutex("a"), client.mutex("b").fixed_lease(SECOND)];
    let guards = multi(members).lock().await.unwrap();
    assert!(guards.check().is_ok() && guards.verify().await.is_ok());
    assert!(guards.remaining() < SECOND && guards.local_deadline() == guards.members()[1].local_deadline());
    let token = guards.members()[1].token();
    let lost = guards.lost().await;
    assert_eq!(
        (lost.member, lost.key.as_str(), lost.token),
        (Some(1), "b", token)
    );
    assert_eq!(guards.check(), Err(lost.clone()));
    assert_eq!(guards.loss(), Some(lost.clone()));
    assert_eq!(guards.remaining(), Duration::ZERO);
    for answer in [guards.verify().await, guards.unlock().await] {
        assert!(matches!(answer, Err(Error::Lost(error)) if *error == lost));
    }
}
