//! A store that does not answer for a while, or whose replies are lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tenure::{Client, Error, Settings, multi};
use tenure_backend::{AcquireReply, Order};
use tenure_testkit::{Chaos, FaultRates};

use crate::faulty_backend::Verb;
use crate::fixture::{
    Fixture, MS, SECOND, assert_error, assert_transient, mutex, pass, queued, served, served_within, settle,
    spawned, successor,
};

#[tokio::test(start_paused = true)]
async fn a_waiter_retries_an_unavailable_store() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        let (client, backend) = fixture.faulty_client();
        backend.control(Verb::Acquire).fail_before(5);
        let mutex = mutex(&client, fair);
        let guard = mutex.lock_within(10 * SECOND).await.unwrap();
        guard.unlock().await.unwrap();
    }
    let (client, backend) = fixture.faulty_client();
    backend.control(Verb::Acquire).fail_before(5);
    let both = multi([client.mutex("k"), client.mutex("l")]);
    let guards = both.lock_within(10 * SECOND).await.unwrap();
    guards.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_not_reported_as_a_busy_lock() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        let (client, backend) = fixture.faulty_client();
        let mutex = mutex(&client, fair);
        backend.control(Verb::Acquire).fail_before(usize::MAX);
        for limit in [3 * SECOND, 50 * MS] {
            assert_transient(&mutex.lock_within(limit).await, limit);
        }
        assert_error!(mutex.try_lock().await, Error::Backend(_));
        let fell_back = mutex.with_or_else(SECOND, async |_| false, async || true);
        assert_error!(fell_back.await, Error::Backend(_));
        // When the store answers again, a busy lock is reported as busy.
        backend.control(Verb::Acquire).fail_before(0);
        let held = fixture.client().mutex("k").lock().await.unwrap();
        assert_error!(mutex.lock_within(3 * SECOND).await, Error::Timeout);
        held.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_is_not_reported_as_a_busy_lock() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        let (client, backend) = fixture.faulty_client();
        let mutex = mutex(&client, fair);
        backend.control(Verb::Acquire).hold_before();
        for limit in [MS, 100 * MS, 3 * SECOND] {
            assert_transient(&mutex.lock_within(limit).await, (fair, limit));
            let work = mutex.with_or_else(limit, async |_| "worked", async || "sold out");
            assert_transient(&work.await, (fair, limit, "no holder is known"));
        }
        backend.control(Verb::Acquire).resume();
    }
}

/// A quorum of which most servers are dead fails, withdraws the claim, and answers that it has ended without asking the servers.
/// A store without a free connection answers that a claim is late.
#[tokio::test(start_paused = true)]
async fn an_answer_without_a_request_does_not_show_that_the_store_answers() {
    let fixture = Fixture::new();
    for (fair, answer) in [
        (false, AcquireReply::Ended),
        (true, AcquireReply::Ended),
        (false, AcquireReply::TooLate),
        (true, AcquireReply::TooLate),
    ] {
        let (client, backend) = fixture.faulty_client();
        let mutex = mutex(&client, fair);
        *backend.answer_after_failure.lock() = Some(answer.clone());
        for limit in (1..40).map(|steps| steps * 37 * MS) {
            assert_transient(&mutex.lock_within(limit).await, (fair, &answer, limit));
        }
        *backend.answer_after_failure.lock() = None;
        mutex.lock().await.unwrap().unlock().await.unwrap();
    }
}

/// The store does not answer the request for wake-ups. The waiter polls, and gets the freed key within 1 s.
#[tokio::test(start_paused = true)]
async fn a_waiter_polls_while_its_watch_is_unanswered() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        let (client, backend) = fixture.faulty_client();
        let held = fixture.client().mutex("k").fair().lock().await.unwrap();
        backend.control(Verb::Watch).hold_before();
        let waiting = spawned(mutex(&client, fair).lock()).await;
        held.unlock().await.unwrap();
        let waited = tokio::time::Instant::now();
        let guard = served(waiting).await;
        assert!(waited.elapsed() < SECOND, "{:?}", waited.elapsed());
        backend.control(Verb::Watch).resume();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_unlock_is_an_error_and_finishes_later() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Release).hold_before();
    let asked = tokio::time::Instant::now();
    let unlocked = tokio::time::timeout(60 * SECOND, guard.unlock()).await.unwrap();
    assert_transient(&unlocked, "an unlock without an answer");
    assert!(asked.elapsed() <= 10 * SECOND, "{:?}", asked.elapsed());
    backend.control(Verb::Release).resume();
    settle().await;
    assert!(fixture.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_of_an_unavailable_store_is_not_busy() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let held = fixture.client().mutex("a").lock().await.unwrap();
    let both = spawned(multi([client.mutex("a"), client.mutex("b")]).lock_within(3 * SECOND)).await;
    backend.control(Verb::Acquire).fail_before(usize::MAX);
    held.unlock().await.unwrap();
    assert_transient(&both.await.unwrap(), "the store has become unavailable");
}

/// R25: a lost reply hides a grant. The retry gets the same claim, so there is one holder.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_one_holder_and_then_none() {
    let fixture = Fixture::new();
    for (fair, order) in [
        (false, Order::Both),
        (true, Order::Both),
        (false, Order::FifoForBoth),
    ] {
        let (client, backend) = fixture.faulty_client_where(|profile| profile.mutex = order);
        backend.control(Verb::Acquire).fail_after(1);
        let mutex = mutex(&client, fair);
        let guard = mutex.lock().await.unwrap();
        assert_eq!(fixture.status("k").await.unwrap().holders.len(), 1);
        guard.unlock().await.unwrap();
        assert!(fixture.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_is_retried_until_the_store_confirms_it() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    for lost_reply in [false, true] {
        let guard = client.mutex("k").lock().await.unwrap();
        if lost_reply {
            backend.control(Verb::Release).fail_after(3);
        } else {
            backend.control(Verb::Release).fail_before(3);
        }
        guard.unlock().await.unwrap();
        assert!(fixture.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_unlock_is_an_error_and_finishes_later() {
    for names_successor in [false, true] {
        let (fixture, client, backend, guard) = Fixture::holding().await;
        let waiting = OptionFuture::from(names_successor.then(|| successor(&client))).await;
        backend.control(Verb::Release).fail_before(usize::MAX);
        let before = tokio::time::Instant::now();
        assert_error!(guard.unlock().await, Error::Backend(_));
        assert!(before.elapsed() <= 5 * SECOND);
        backend.control(Verb::Release).fail_before(0);
        if let Some(waiting) = waiting {
            let guard = waiting.await.unwrap().unwrap();
            assert!(before.elapsed() < 7 * SECOND, "{:?}", before.elapsed());
            guard.unlock().await.unwrap();
        }
        fixture.freed("k", 2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_without_a_last_answer_names_the_one_before() {
    let (_, _client, backend, guard) = Fixture::holding().await;
    let release = backend.control(Verb::Release);
    release.fail_before(1);
    let before = tokio::time::Instant::now();
    let unlock = tokio::spawn(guard.unlock());
    settle().await;
    release.hold_before();
    let error = unlock.await.unwrap().expect_err("the store stops to answer");
    assert!(before.elapsed() < 5 * SECOND + 50 * MS, "{:?}", before.elapsed());
    assert!(error.to_string().contains("lets this call fail"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_unlock_is_retried_in_the_background() {
    for names_successor in [false, true] {
        let (fixture, client, backend, guard) = Fixture::holding().await;
        let waiting = OptionFuture::from(names_successor.then(|| successor(&client))).await;
        backend.control(Verb::Release).refuse(1);
        let before = tokio::time::Instant::now();
        assert_error!(guard.unlock().await, Error::Backend(_));
        if let Some(waiting) = waiting {
            waiting.await.unwrap().unwrap().unlock().await.unwrap();
        }
        fixture.freed("k", SECOND).await;
        assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
    }
}

/// A failing release is tried a last time at its time limit.
#[tokio::test(start_paused = true)]
async fn a_release_makes_a_last_try_at_its_limit() {
    for dropped in [false, true] {
        let fixture = Fixture::new();
        let limit = 3 * SECOND;
        let settings = tenure::testing::seeded(Settings::default().unlock_limit(limit), [7; 16]);
        let (client, backend) = fixture.faulty_client_with(settings);
        // An unlock is retried until `unlock_limit`, a dropped guard's release until the lease ends.
        let lease = if dropped { limit } else { 10 * limit };
        let guard = client.mutex("k").lease(lease).lock().await.unwrap();
        let release = backend.control(Verb::Release);
        release.fail_before(usize::MAX);
        let kept = (!dropped).then_some(guard);
        let unlock = kept.map(|guard| tokio::spawn(guard.unlock()));
        settle().await;
        pass(limit - 2 * MS).await;
        let tries = release.count();
        release.fail_before(0);
        pass(4 * MS).await;
        assert_eq!(release.count(), tries + 1, "dropped {dropped}");
        assert!(fixture.is_free("k").await);
        if let Some(unlock) = unlock {
            unlock.await.unwrap().unwrap();
        }
    }
}

/// A request without a reply may place its claim until the call limit of 5 s. The client retries the withdrawal until
/// then, although the lease is 1 s.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_retried_while_its_claim_may_be_placed() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let release = backend.control(Verb::Release);
    backend.control(Verb::Acquire).fail_after(1);
    release.fail_before(usize::MAX);
    let answer = client.mutex("k").lease(SECOND).try_lock().await;
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
    pass(3 * SECOND).await;
    let tries = release.count();
    pass(SECOND).await;
    assert!(release.count() > tries, "given up after {tries} tries");
}

/// The store grants each claim of a waiter, and every reply is lost. An unfair claim is withdrawn at once, and the waiter
/// asks with another one. A fair claim keeps its place in the queue, but at most for a lease.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_replies_blocks_no_other_client() {
    let fixture = Fixture::new();
    for (fair, limit) in [(false, SECOND), (true, 4 * SECOND)] {
        let (client, backend) = fixture.faulty_client();
        backend.control(Verb::Acquire).fail_after(usize::MAX);
        let waiting = spawned(mutex(&client, fair).lease(3 * SECOND).lock()).await;
        for _ in 0..3 {
            pass(500 * MS).await;
            let other = spawned(fixture.client().mutex("k").lock()).await;
            served_within(limit, other).await.unlock().await.unwrap();
        }
        let before = backend.control(Verb::Acquire).count();
        pass(10 * SECOND).await;
        let asked = backend.control(Verb::Acquire).count() - before;
        assert!(asked <= 40, "asked {asked} times in 10 s");
        backend.control(Verb::Acquire).fail_after(0);
        let guard = served_within(limit, waiting).await;
        guard.unlock().await.unwrap();
        assert!(fixture.is_free("k").await);
    }
}

/// The reply to a release is lost, and the store has granted the successor. The client repeats the release alone.
#[tokio::test(start_paused = true)]
async fn a_successor_without_a_reply_is_withdrawn() {
    let (fixture, client, backend, guard) = Fixture::holding().await;
    let waiting = successor(&client).await;
    backend.control(Verb::Acquire).fail_before(usize::MAX);
    backend.control(Verb::Release).fail_after(3);
    guard.unlock().await.unwrap();
    assert_eq!(
        backend.reserved.lock().len(),
        1,
        "one release names the successor"
    );
    fixture.freed("k", SECOND).await;
    backend.control(Verb::Acquire).fail_before(0);
    served_within(SECOND, waiting).await.unlock().await.unwrap();
}

/// R16: the store refuses the claim of the first local waiter. The others do not wait behind it: each gets an error.
#[tokio::test(start_paused = true)]
async fn a_failed_first_waiter_does_not_block_the_next() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let blocker = fixture.client().rwlock("k").read().await.unwrap();
    backend.yield_everywhere(3);
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(client.mutex("k").lock())).collect();
    for waiter in waiters {
        let failed = tokio::time::timeout(SECOND, waiter).await;
        assert_error!(
            failed.expect("the waiter never ends").unwrap(),
            Error::Mismatch { .. }
        );
    }
    blocker.unlock().await.unwrap();
    drop(client.mutex("k").lock_within(SECOND).await.unwrap());
}

/// R15: requests for wake-ups fail. The waiter polls, and gets the freed key within 200 ms.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_wake_ups_polls() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Watch).fail_before(usize::MAX);
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    let before = tokio::time::Instant::now();
    drop(waiting.await.unwrap().unwrap());
    assert!(before.elapsed() < 200 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_failed_watch_is_retried() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Watch).fail_before(1);
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    pass(5 * SECOND).await;
    assert_eq!(backend.control(Verb::Watch).count(), 2);
    guard.unlock().await.unwrap();
    settle().await;
    assert!(waiting.is_finished(), "it was woken");
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_idle_waiter_asks_seldom() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = fixture.client().mutex("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    pass(300 * SECOND).await;
    let asked = backend.control(Verb::Acquire).count();
    assert!(asked <= 40, "{asked} times in 300 s");
    guard.unlock().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

/// R4: a store that forgets ended claims may place a withdrawn claim again, by a late request. So it is withdrawn twice.
#[tokio::test(start_paused = true)]
async fn a_store_that_forgets_claims_gets_a_second_withdrawal() {
    for fair in [false, true] {
        let fixture = Fixture::new();
        let (client, backend) = fixture.faulty_client_where(|profile| profile.remembers_ended = false);
        backend.control(Verb::Acquire).fail_after(1);
        drop(queued(mutex(&client, fair).lock()).await);
        settle().await;
        let release = backend.control(Verb::Release);
        let before = release.count();
        assert!(before >= 1 && fixture.is_free("k").await, "fair {fair}");
        pass(Duration::from_secs(5) + SECOND).await;
        assert!(release.count() > before, "fair {fair}");
    }
}

/// An acquire gets no reply, but a repeated call acquires the claim. So the client does not withdraw the claim later.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_held_after_all_is_not_withdrawn() {
    for fair in [false, true] {
        let fixture = Fixture::new();
        let (client, backend) = fixture.faulty_client_where(|profile| profile.remembers_ended = false);
        let other = fixture.client().mutex("k").lock().await.unwrap();
        let waiting = spawned(mutex(&client, fair).lock()).await;
        settle().await;
        backend.control(Verb::Acquire).fail_after(1);
        other.unlock().await.unwrap();
        let guard = served(waiting).await;
        pass(20 * SECOND).await;
        assert!(guard.is_held(), "fair {fair}");
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_delay_the_next_poll() {
    for fair in [false, true] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        fixture.dead_holder("k", 10 * SECOND).await;
        backend.control(Verb::Acquire).delay(4 * SECOND);
        let start = tokio::time::Instant::now();
        let waiting = tokio::spawn(mutex(&client, fair).lock());
        pass(5 * SECOND).await;
        backend.control(Verb::Acquire).delay(Duration::ZERO);
        drop(served(waiting).await);
        let waited = start.elapsed();
        assert!(waited < 12 * SECOND, "fair {fair}: {waited:?}");
    }
}

/// R15: all wake-ups are lost. The waiter polls at the latest when the holder's lease of 6 s would have ended.
#[tokio::test(start_paused = true)]
async fn lost_wake_ups_delay_a_waiter_only_until_the_lease_ends() {
    let (fixture, [other]) = Fixture::clients();
    let deaf = FaultRates {
        loses_wake: 100,
        ..FaultRates::NONE
    };
    for fair in [false, true] {
        let holder = other.mutex("k").lease(6 * SECOND).lock().await.unwrap();
        let chaos = Chaos::new(fixture.backend(), 1, deaf);
        let client = Client::new(Arc::new(chaos), Settings::default());
        let waiting = spawned(mutex(&client, fair).lock()).await;
        holder.unlock().await.unwrap();
        let guard = served_within(7 * SECOND, waiting).await;
        guard.unlock().await.unwrap();
    }
}
