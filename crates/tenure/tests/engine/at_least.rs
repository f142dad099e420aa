//! Locks with `at_least`: the store keeps the key beyond the guard and the client. Other files test how such locks are
//! handed over and lost.

use std::time::Duration;

use tenure::{Error, LostCause, multi};
use tenure_backend::{Backend, Batch, Claim, RenewReply, RenewRequest};

use crate::faulty_backend::Verb;
use crate::fixture::{
    Fixture, MS, SECOND, assert_error, assert_transient, begun, evict, pass, poll_once, queued, settle,
    spawned,
};

const LEAST: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn at_least_outlives_the_guard_and_the_client() {
    // One time is shorter than the lease of 30 s, one is longer.
    for least in [LEAST, 40 * SECOND] {
        for (ending, closes) in [
            ("drop", true),
            ("unlock", true),
            ("neither", true),
            ("drop", false),
        ] {
            let case = format!("{ending} for {least:?}, closes: {closes}");
            let (fixture, [client, other]) = Fixture::clients();
            let guard = client.mutex("k").at_least(least).lock().await.unwrap();
            let mut alive = None;
            match ending {
                "drop" => drop(guard),
                "unlock" => guard.unlock().await.unwrap(),
                _ => alive = Some(guard),
            }
            if closes {
                client.close(SECOND).await.unwrap();
            }
            assert!(alive.is_none_or(|guard| !guard.is_held()), "{case}");
            assert!(other.mutex("k").try_lock().await.unwrap().is_none(), "{case}");
            pass(least - 100 * MS).await;
            assert!(!fixture.is_free("k").await, "{case}");
            pass(200 * MS).await;
            assert!(other.mutex("k").try_lock().await.unwrap().is_some(), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_a_kept_key_when_at_least_ends() {
    let (_, [holder, client]) = Fixture::clients();
    let guard = holder.mutex("k").at_least(LEAST).lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    let start = tokio::time::Instant::now();
    guard.unlock().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    let waited = start.elapsed();
    assert!(waited > LEAST - 50 * MS && waited < LEAST + 50 * MS, "{waited:?}");
    drop(next);
}

/// The store rounds leases up, so its lease would keep the key too long. The client releases the key when `at_least`
/// is over.
#[tokio::test(start_paused = true)]
async fn a_kept_key_with_a_rounded_lease_is_released_on_time() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.round_up_to(60 * SECOND);
    drop(client.mutex("k").at_least(LEAST).lock().await.unwrap());
    pass(LEAST - 100 * MS).await;
    assert!(!fixture.is_free("k").await);
    pass(200 * MS).await;
    assert!(fixture.is_free("k").await);
}

/// A client evicts its own claim, which `at_least` keeps after an unlock. The client's waiter gets the key within 1 s.
#[tokio::test(start_paused = true)]
async fn evicting_a_kept_claim_frees_the_key_immediately() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").at_least(60 * SECOND).lock().await.unwrap();
    guard.unlock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    evict(&client, "k").await;
    let evicted = tokio::time::Instant::now();
    let next = waiting.await.unwrap().unwrap();
    assert!(evicted.elapsed() <= SECOND, "{:?}", evicted.elapsed());
    next.unlock().await.unwrap();
    assert!(fixture.is_free("k").await, "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn a_live_client_keeps_a_key_beyond_the_longest_lease() {
    let fixture = Fixture::new();
    let longest = 10 * SECOND;
    let (client, _) = fixture.faulty_client_where(|profile| profile.limits.max_lease = longest);
    let mutex = client.mutex("k").lease(longest).at_least(3 * longest);
    drop(mutex.lock().await.unwrap());
    pass(longest + longest / 2).await;
    assert!(!fixture.is_free("k").await);
    client.close(SECOND).await.unwrap();
    pass(longest).await;
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn an_unlock_reports_whether_the_store_keeps_the_key() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").at_least(600 * SECOND).lock().await.unwrap();
    backend.control(Verb::Renew).fail_before(usize::MAX);
    let start = tokio::time::Instant::now();
    assert_transient(&guard.unlock().await, "an unlock that fails");
    let took = start.elapsed();
    assert!(took <= 6 * SECOND, "{took:?}");
    backend.control(Verb::Renew).fail_before(0);
    pass(100 * SECOND).await;
    assert!(!fixture.is_free("k").await, "the watchdog goes on");

    let mutex = client.mutex("refused").at_least(600 * SECOND);
    let guard = mutex.lock().await.unwrap();
    backend.control(Verb::Renew).refuse(1);
    let unlocked = guard.unlock().await;
    assert!(
        matches!(&unlocked, Err(Error::Backend(error)) if !error.is_transient()),
        "{unlocked:?}"
    );

    let guard = client.mutex("l").at_least(600 * SECOND).lock().await.unwrap();
    evict(&fixture.client(), "l").await;
    match guard.unlock().await {
        Err(Error::Lost(lost)) => assert!(matches!(lost.cause, LostCause::Evicted { .. }), "{lost:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_multi_lock_ignores_at_least() {
    let (fixture, [client]) = Fixture::clients();
    let _reader = fixture.client().rwlock("of another kind").read().await.unwrap();
    let members = [client.mutex("k").at_least(LEAST), client.mutex("of another kind")];
    assert_error!(multi(members).lock().await, Error::Mismatch { .. });
    settle().await;
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_multi_lock_ignores_at_least() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.yield_everywhere(1);
    for polls in 1..12 {
        let members = ["k", "l"].map(|key| client.mutex(key).at_least(LEAST));
        let mut lock = multi(members).lock();
        for _ in 0..polls {
            if let Some(guards) = poll_once(&mut lock).await {
                // The multi-lock was acquired before it could be dropped, so its members are kept for `LEAST`.
                drop(guards);
                return;
            }
        }
        drop(lock);
        fixture.freed("k", 100 * MS).await;
        fixture.freed("l", 100 * MS).await;
    }
    panic!("twelve polls find two free keys");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_multi_lock_ignores_at_least() {
    let (fixture, [client]) = Fixture::clients();
    let _busy = fixture.client().mutex("l").lock().await.unwrap();
    let both = multi(["k", "l"].map(|key| client.mutex(key).at_least(LEAST)));
    assert!(both.try_lock().await.unwrap().is_none());
    assert!(fixture.is_free("k").await);
    let _waiting = begun(queued(both.lock()).await).await;
    assert!(fixture.is_free("k").await);
}

/// Renewals fail while the client closes. `close` retries until the store confirms that it keeps the key.
#[tokio::test(start_paused = true)]
async fn closing_during_errors_still_keeps_the_key() {
    for dropped_before in [false, true] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let guard = client.mutex("k").at_least(60 * SECOND).lock().await.unwrap();
        backend.control(Verb::Renew).fail_before(3);
        let mut alive = Some(guard);
        if dropped_before {
            alive = None;
            settle().await;
        }
        client.close(10 * SECOND).await.unwrap();
        assert_eq!(backend.control(Verb::Renew).count(), 4);
        // Longer than the lease of 30 s, shorter than `at_least`.
        pass(55 * SECOND).await;
        assert!(!fixture.is_free("k").await, "dropped before {dropped_before}");
        drop(alive);
    }
}

/// The local deadline comes a little before the end of the lease, which is also that of `at_least`.
#[tokio::test(start_paused = true)]
async fn the_local_deadline_does_not_end_at_least() {
    for drops in [false, true] {
        let (fixture, [client]) = Fixture::clients();
        let mutex = client.mutex("k").fixed_lease(100 * SECOND).at_least(100 * SECOND);
        let guard = mutex.lock().await.unwrap();
        while guard.is_held() {
            pass(100 * MS).await;
        }
        let guard = if drops {
            drop(guard);
            None
        } else {
            Some(guard)
        };
        pass(SECOND).await;
        assert!(!fixture.is_free("k").await, "drops: {drops}");
        pass(SECOND).await;
        assert!(fixture.is_free("k").await, "drops: {drops}");
        drop(guard);
    }
}

/// All renewals before the local deadline take effect, but no reply comes. So the store's lease is far longer than the
/// client knows, and `at_least` is over sooner.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_local_deadline_has_passed_is_released_after_at_least() {
    for drops in [false, true] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let mutex = client.mutex("k").lease(30 * SECOND).at_least(40 * SECOND);
        let guard = mutex.lock().await.unwrap();
        let renewals = backend.control(Verb::Renew);
        renewals.fail_after(usize::MAX);
        while guard.is_held() {
            pass(100 * MS).await;
        }
        renewals.fail_after(0);
        let waiting = spawned(client.mutex("k").lock()).await;
        let guard = (!drops).then_some(guard);
        pass(9 * SECOND).await;
        assert!(!fixture.is_free("k").await, "drops: {drops}");
        pass(2 * SECOND).await;
        assert!(waiting.is_finished(), "drops: {drops}");
        drop((guard, waiting.await));
        settle().await;
        assert!(fixture.is_free("k").await, "drops: {drops}");
    }
}

/// A claim that the store does not have needs no release: nothing of it is left to wait for.
#[tokio::test(start_paused = true)]
async fn an_evicted_claim_is_not_released_after_at_least() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").at_least(LEAST).lock().await.unwrap();
    evict(&fixture.client(), "k").await;
    guard.verify().await.unwrap_err();
    drop(guard);
    pass(2 * LEAST).await;
    assert_eq!(backend.control(Verb::Release).count(), 0);
}

/// ZooKeeper's servers limit leases, and a client learns that only from the answers.
#[tokio::test(start_paused = true)]
async fn a_store_that_shortens_leases_keeps_the_key_for_at_least() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let mutex = client.mutex("k").lease(90 * SECOND).at_least(300 * SECOND);
    let guard = mutex.lock().await.unwrap();
    backend.renew_for(20 * SECOND);
    guard.unlock().await.unwrap();
    for _ in 0..29 {
        pass(10 * SECOND).await;
        assert!(!fixture.is_free("k").await);
    }
    pass(11 * SECOND).await;
    assert!(fixture.is_free("k").await);
}

/// A renewal that the holder sent before it unlocked arrives after the one that keeps the key.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_shorten_at_least() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").at_least(300 * SECOND).lock().await.unwrap();
    let claim = Claim::of(guard.claim().clone(), 30 * SECOND);
    guard.unlock().await.unwrap();
    let late = backend
        .clone()
        .renew(Batch::from_iter([RenewRequest::of(&claim)]))
        .await;
    assert!(matches!(late[..], [RenewReply::Alive { .. }]), "{late:?}");
    pass(290 * SECOND).await;
    assert!(!fixture.is_free("k").await);
    pass(11 * SECOND).await;
    assert!(fixture.is_free("k").await);
}
