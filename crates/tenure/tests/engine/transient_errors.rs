//! A store that does not answer, or whose answers are lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tenure::{Client, Error, Settings, multi};
use tenure_testkit::{Chaos, Weather};

use crate::stage::Verb;
use crate::world::{
    MS, SECOND, World, assert_error, assert_weather, mutex, pass, queued, served, served_within, settle,
    spawned, successor,
};

#[tokio::test(start_paused = true)]
async fn while_waiting_an_unavailable_store_is_asked_again() {
    let world = World::new();
    for fair in [false, true] {
        let (client, stage) = world.staged();
        stage.act(Verb::Acquire).fail_before(5);
        let mutex = mutex(&client, fair);
        let guard = mutex.lock_within(10 * SECOND).await.unwrap();
        guard.unlock().await.unwrap();
    }
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).fail_before(5);
    let both = multi([client.mutex("k"), client.mutex("l")]);
    let guards = both.lock_within(10 * SECOND).await.unwrap();
    guards.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_unavailable_is_no_busy_lock_to_who_waits() {
    let world = World::new();
    for fair in [false, true] {
        let (client, stage) = world.staged();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).fail_before(usize::MAX);
        for limit in [3 * SECOND, 50 * MS] {
            assert_weather(&mutex.lock_within(limit).await, limit);
        }
        assert_error!(mutex.try_lock().await, Error::Backend(_));
        let fell_back = mutex.with_or_else(SECOND, async |_| false, async || true);
        assert_error!(fell_back.await, Error::Backend(_));
        // Once it answers, a busy lock is a busy lock.
        stage.act(Verb::Acquire).fail_before(0);
        let held = world.client().mutex("k").lock().await.unwrap();
        assert_error!(mutex.lock_within(3 * SECOND).await, Error::Timeout);
        held.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_no_busy_lock_however_short_the_limit() {
    let world = World::new();
    for fair in [false, true] {
        let (client, stage) = world.staged();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).hold_before();
        for limit in [MS, 100 * MS, 3 * SECOND] {
            assert_weather(&mutex.lock_within(limit).await, (fair, limit));
            let work = mutex.with_or_else(limit, async |_| "worked", async || "sold out");
            assert_weather(&work.await, (fair, limit, "nobody is known to hold it"));
        }
        stage.act(Verb::Acquire).go_on();
    }
}

/// Wake-ups are hints, always backed by a poll: also where the store never says whether they will come.
#[tokio::test(start_paused = true)]
async fn who_could_not_find_out_whether_it_will_be_woken_polls() {
    let world = World::new();
    for fair in [false, true] {
        let (client, stage) = world.staged();
        let held = world.client().mutex("k").fair().lock().await.unwrap();
        stage.act(Verb::Watch).hold_before();
        let waiting = spawned(mutex(&client, fair).lock()).await;
        held.unlock().await.unwrap();
        let waited = tokio::time::Instant::now();
        let guard = served(waiting).await;
        assert!(waited.elapsed() < SECOND, "{:?}", waited.elapsed());
        stage.act(Verb::Watch).go_on();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_never_answered_says_so_and_goes_on_behind() {
    let (world, client, stage) = World::with_stage();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Release).hold_before();
    let asked = tokio::time::Instant::now();
    let unlocked = tokio::time::timeout(60 * SECOND, guard.unlock()).await.unwrap();
    assert_weather(&unlocked, "an unlock without an answer");
    assert!(asked.elapsed() <= 10 * SECOND, "{:?}", asked.elapsed());
    stage.act(Verb::Release).go_on();
    settle().await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_whose_store_stays_unavailable_is_not_busy() {
    let (world, client, stage) = World::with_stage();
    let held = world.client().mutex("a").lock().await.unwrap();
    let both = spawned(multi([client.mutex("a"), client.mutex("b")]).lock_within(3 * SECOND)).await;
    stage.act(Verb::Acquire).fail_before(usize::MAX);
    held.unlock().await.unwrap();
    assert_weather(&both.await.unwrap(), "the store has become unavailable");
}

/// R25: a grant whose reply was lost counts once.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_one_holder_and_then_none() {
    let world = World::new();
    for fair in [false, true] {
        let (client, stage) = world.staged();
        stage.act(Verb::Acquire).fail_after(1);
        let mutex = mutex(&client, fair);
        let guard = mutex.lock().await.unwrap();
        assert_eq!(world.status("k").await.unwrap().holders.len(), 1);
        guard.unlock().await.unwrap();
        assert!(world.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_is_repeated_until_the_store_confirms_it() {
    let (world, client, stage) = World::with_stage();
    for lost_reply in [false, true] {
        let guard = client.mutex("k").lock().await.unwrap();
        if lost_reply {
            stage.act(Verb::Release).fail_after(3);
        } else {
            stage.act(Verb::Release).fail_before(3);
        }
        guard.unlock().await.unwrap();
        assert!(world.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_cannot_be_confirmed_says_so_and_goes_on_behind() {
    for names_successor in [false, true] {
        let (world, client, stage, guard) = World::held().await;
        let waiting = OptionFuture::from(names_successor.then(|| successor(&client))).await;
        stage.act(Verb::Release).fail_before(usize::MAX);
        let before = tokio::time::Instant::now();
        assert_error!(guard.unlock().await, Error::Backend(_));
        assert!(before.elapsed() <= 5 * SECOND);
        stage.act(Verb::Release).fail_before(0);
        if let Some(waiting) = waiting {
            let guard = waiting.await.unwrap().unwrap();
            assert!(before.elapsed() < 7 * SECOND, "{:?}", before.elapsed());
            guard.unlock().await.unwrap();
        }
        world.freed("k", 2 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_refused_goes_on_behind() {
    for names_successor in [false, true] {
        let (world, client, stage, guard) = World::held().await;
        let waiting = OptionFuture::from(names_successor.then(|| successor(&client))).await;
        stage.act(Verb::Release).refuse(1);
        let before = tokio::time::Instant::now();
        assert_error!(guard.unlock().await, Error::Backend(_));
        if let Some(waiting) = waiting {
            waiting.await.unwrap().unwrap().unlock().await.unwrap();
        }
        world.freed("k", SECOND).await;
        assert!(before.elapsed() < SECOND, "{:?}", before.elapsed());
    }
}

/// Until its lease has ended the store may keep the claim, so the last try is made at the limit itself.
#[tokio::test(start_paused = true)]
async fn a_release_is_tried_a_last_time_at_its_limit() {
    for dropped in [false, true] {
        let world = World::new();
        let limit = 3 * SECOND;
        let mut settings = Settings::default().unlock_limit(limit);
        settings.seed = Some([7; 16]);
        let (client, stage) = world.staged_with(settings);
        // An unlock has its own limit; a guard that is dropped has the lease.
        let lease = if dropped { limit } else { 10 * limit };
        let guard = client.mutex("k").lease(lease).lock().await.unwrap();
        let release = stage.act(Verb::Release);
        release.fail_before(usize::MAX);
        let kept = (!dropped).then_some(guard);
        let unlock = kept.map(|guard| tokio::spawn(guard.unlock()));
        settle().await;
        pass(limit - 2 * MS).await;
        let tries = release.count();
        release.fail_before(0);
        pass(4 * MS).await;
        assert_eq!(release.count(), tries + 1, "dropped {dropped}");
        assert!(world.is_free("k").await);
        if let Some(unlock) = unlock {
            unlock.await.unwrap().unwrap();
        }
    }
}

/// An unanswered request may place its claim until the call's time limit, which may be longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_tried_for_as_long_as_its_claim_may_be_placed() {
    let (_, client, stage) = World::with_stage();
    let release = stage.act(Verb::Release);
    stage.act(Verb::Acquire).fail_after(1);
    release.fail_before(usize::MAX);
    let answer = client.mutex("k").lease(SECOND).try_lock().await;
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
    pass(3 * SECOND).await;
    let tries = release.count();
    pass(SECOND).await;
    assert!(release.count() > tries, "given up after {tries} tries");
}

/// R16: the local queue goes on after the remote acquire of its head has failed.
#[tokio::test(start_paused = true)]
async fn a_failed_head_does_not_strand_who_waits_behind_it() {
    let (world, client, stage) = World::with_stage();
    let blocker = world.client().rwlock("k").read().await.unwrap();
    stage.yield_everywhere(3);
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(client.mutex("k").lock())).collect();
    for waiter in waiters {
        let failed = tokio::time::timeout(SECOND, waiter).await;
        assert_error!(failed.expect("stranded").unwrap(), Error::Mismatch { .. });
    }
    blocker.unlock().await.unwrap();
    drop(client.mutex("k").lock_within(SECOND).await.unwrap());
}

/// R15: a lost wake-up strands nobody: polls back it.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_wake_ups_polls() {
    let (world, client, stage) = World::with_stage();
    stage.act(Verb::Watch).fail_before(usize::MAX);
    let guard = world.client().mutex("k").lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    let before = tokio::time::Instant::now();
    drop(waiting.await.unwrap().unwrap());
    assert!(before.elapsed() < 200 * MS, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_could_not_listen_tries_to_again() {
    let (world, client, stage) = World::with_stage();
    stage.act(Verb::Watch).fail_before(1);
    let guard = world.client().mutex("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    pass(5 * SECOND).await;
    assert_eq!(stage.act(Verb::Watch).count(), 2);
    guard.unlock().await.unwrap();
    settle().await;
    assert!(waiting.is_finished(), "it was woken");
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_idle_waiter_asks_seldom() {
    let (world, client, stage) = World::with_stage();
    let guard = world.client().mutex("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    pass(300 * SECOND).await;
    let asked = stage.act(Verb::Acquire).count();
    assert!(asked <= 40, "{asked} times in 300 s");
    guard.unlock().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

/// R4: a store that forgets could place a claim by a request that is still on its way.
#[tokio::test(start_paused = true)]
async fn where_ended_claims_are_forgotten_one_that_was_not_answered_is_withdrawn_twice() {
    for fair in [false, true] {
        let world = World::new();
        let (client, stage) = world.staged_where(|profile| profile.remembers_ended = false);
        stage.act(Verb::Acquire).fail_after(1);
        drop(queued(mutex(&client, fair).lock()).await);
        settle().await;
        let release = stage.act(Verb::Release);
        let before = release.count();
        assert!(before >= 1 && world.is_free("k").await, "fair {fair}");
        pass(Settings::default().call_limit + SECOND).await;
        assert!(release.count() > before, "fair {fair}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_long_on_the_way_does_not_put_off_the_next_poll() {
    for fair in [false, true] {
        let (world, client, stage) = World::with_stage();
        world.dead_holder("k", 10 * SECOND).await;
        stage.act(Verb::Acquire).delay(4 * SECOND);
        let start = tokio::time::Instant::now();
        let waiting = tokio::spawn(mutex(&client, fair).lock());
        pass(5 * SECOND).await;
        stage.act(Verb::Acquire).delay(Duration::ZERO);
        drop(served(waiting).await);
        let waited = start.elapsed();
        assert!(waited < 12 * SECOND, "fair {fair}: {waited:?}");
    }
}

/// R15: where every wake-up is lost, a waiter asks again when the lease that it waits for could have ended.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_wake_ups_are_all_lost_asks_when_the_holders_lease_could_have_ended() {
    let (world, [other]) = World::clients();
    let deaf = Weather {
        loses_wake: 100,
        ..Weather::CALM
    };
    for fair in [false, true] {
        let holder = other.mutex("k").lease(6 * SECOND).lock().await.unwrap();
        let chaos = Chaos::new(world.backend(), 1, deaf);
        let client = Client::new(Arc::new(chaos), Settings::default());
        let waiting = spawned(mutex(&client, fair).lock()).await;
        holder.unlock().await.unwrap();
        let guard = served_within(7 * SECOND, waiting).await;
        guard.unlock().await.unwrap();
    }
}
