//! Handing a claim on in memory: how far, for how long, and to whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Client, Guard, Settings, multi};
use tenure_backend::Reach;

use crate::stage::{Stage, Verb, stage_with_profile};
use crate::world::{MS, SECOND, World, begun, evict, pass, queued, served, served_within, settle, spawned};

/// Locks a key on which runs of 8 grants are due: it has been handed over through the store until then.
async fn first_of_eight(client: &Client) -> Guard {
    let mut guard = client.mutex("k").lock().await.unwrap();
    for _ in 0..1 + 2 + 4 {
        guard = hand_over(client, guard).await;
    }
    guard
}

/// Locks, has a second task wait, and gives the first guard back; answers the second guard.
async fn hand_over(client: &tenure::Client, guard: Guard) -> Guard {
    let next = spawned(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    served(next).await
}

/// Has tasks take the key again and again, and counts how often they had it.
async fn hammer(client: &Client, tasks: u32, hold: Duration) -> Arc<AtomicU32> {
    let turns = Arc::new(AtomicU32::new(0));
    for _ in 0..tasks {
        let (mutex, turns) = (client.mutex("k"), turns.clone());
        let task = async move {
            while let Ok(guard) = mutex.lock().await {
                turns.fetch_add(1, Ordering::Relaxed);
                if hold.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    pass(hold).await;
                }
                guard.unlock().await.unwrap();
            }
        };
        // They come one after the other, and end with the test.
        drop(spawned(task).await);
    }
    turns
}

fn calls(stage: &Stage) -> usize {
    stage.act(Verb::Acquire).count() + stage.act(Verb::Release).count()
}

#[tokio::test(start_paused = true)]
async fn a_fresh_claim_is_handed_on_without_a_call_and_with_a_greater_token() {
    let (world, client, stage) = World::with_stage();
    let mut guard = first_of_eight(&client).await;
    let before = calls(&stage);
    for _ in 1..8 {
        let (token, claim) = (guard.token(), guard.claim().clone());
        guard = hand_over(&client, guard).await;
        assert!(guard.token() > token && guard.claim() == &claim);
    }
    assert_eq!(calls(&stage), before);
    guard.unlock().await.unwrap();
    assert!(world.is_free("k").await);
}

/// Somebody may be there who is not heard of: who only tries, or listens where the server does not count it.
#[tokio::test(start_paused = true)]
async fn on_a_network_a_key_that_is_handed_on_all_the_time_is_let_go_once_a_second() {
    for (reach, is_let_go) in [(Reach::Network, true), (Reach::Process, false)] {
        for passing in [true, false] {
            let world = World::new();
            let mut profile = world.backend().profile().clone();
            profile.reach = reach;
            let settings = Settings::default().passing(passing);
            let client = Client::new(stage_with_profile(world.backend(), profile), settings);
            hammer(&client, 4, 3 * MS).await;
            let (other, mut got) = (world.client().mutex("k"), 0);
            for _ in 0..1_500 {
                if let Some(guard) = other.try_lock().await.unwrap() {
                    got += 1;
                    guard.unlock().await.unwrap();
                }
                pass(2 * MS).await;
            }
            // More often than that it would cost the others their pace.
            let expected = if is_let_go { 2..=20 } else { 0..=0 };
            assert!(
                expected.contains(&got),
                "{reach:?}, {passing}: {got} times in 3 s"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_its_grants_are_used_up() {
    let (_, [client]) = World::clients();
    let mut guard = client.mutex("k").lock().await.unwrap();
    // Each run has twice as many as the one before, up to the setting.
    for grants in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256] {
        let first = guard.claim().clone();
        for grant in 1..grants {
            guard = hand_over(&client, guard).await;
            assert_eq!(guard.claim(), &first, "grant {grant} of {grants}");
        }
        let last = guard.token();
        guard = hand_over(&client, guard).await;
        assert_ne!(guard.claim(), &first, "the grant after {grants} is the store's");
        assert!(guard.token() > last);
    }
}

/// Where tokens follow the server's clock, those that nobody uses must not be many.
#[tokio::test(start_paused = true)]
async fn a_run_reserves_no_more_than_twice_what_the_last_one_handed_out() {
    let (_, client, stage) = World::with_stage();
    let mut guard = client.mutex("k").lock().await.unwrap();
    for (handed_out, reserved) in [
        (1, 2),
        (2, 4),
        (3, 6),
        (6, 12),
        (12, 24),
        (20, 40),
        (2, 4),
        (1, 2),
    ] {
        for _ in 1..handed_out {
            guard = hand_over(&client, guard).await;
        }
        // The window has passed: the next grant is the store's.
        pass(11 * MS).await;
        guard = hand_over(&client, guard).await;
        let last = *stage.reserved.lock().last().unwrap();
        assert_eq!(last, reserved, "after {handed_out} grants");
    }
}

/// With more, many short locks would outrun the clock of a server whose tokens follow it.
#[tokio::test(start_paused = true)]
async fn a_lock_without_local_waiters_reserves_one_token() {
    let (world, client, stage) = World::with_stage();
    for _ in 0..2 {
        client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
    }
    let guard = client.mutex("k").lock().await.unwrap();
    drop(hand_over(&client, guard).await);
    world.freed("k", MS).await;
    client.mutex("k").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(*stage.placed.lock(), [1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_handed_on_only_within_the_pass_window() {
    let (_, client, stage) = World::with_stage();
    let guard = first_of_eight(&client).await;
    pass(11 * MS).await;
    let (token, claim, before) = (guard.token(), guard.claim().clone(), calls(&stage));
    let guard = hand_over(&client, guard).await;
    assert_ne!(guard.claim(), &claim);
    assert!(guard.token() > token);
    assert_eq!(calls(&stage), before + 1, "release and grant are one round trip");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_polled_after_the_window_does_not_return_what_was_handed_on() {
    let (world, [client]) = World::clients();
    let guard = first_of_eight(&client).await;
    let claim = guard.claim().clone();
    let next = queued(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    world.clock.suspend(11 * MS);
    let guard = next.await.unwrap();
    assert_ne!(guard.claim(), &claim, "the run ended: the store granted anew");
}

/// Belief may end within the pass window: here the holder has learned of an eviction.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_handed_on_after_belief_in_it_has_ended() {
    let (_, [client]) = World::clients();
    let guard = first_of_eight(&client).await;
    let (claim, token) = (guard.claim().clone(), guard.token());
    let next = spawned(client.mutex("k").lock()).await;
    evict(&client, "k").await;
    assert!(guard.verify().await.is_err());
    drop(guard);
    let guard = served_within(SECOND, next).await;
    assert!(guard.claim() != &claim && guard.token() > token && guard.is_held());
}

/// As after a suspend: neither the watchdog nor the holder has looked at the clock.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_handed_over_after_its_deadline() {
    let world = World::new();
    // The deadline of a lease of 30 ms is then 7.7 ms after the grant, and within the handover window.
    let (client, _) = world.staged_where(|profile| profile.limits.margin = Some(22 * MS));
    // With linger, the first claim reserves two grants.
    let mutex = client.mutex("k").lease(30 * MS).linger(10 * MS);
    let guard = mutex.lock().await.unwrap();
    let next = spawned(mutex.lock()).await;
    world.clock.suspend(8 * MS);
    drop(guard);
    assert!(served(next).await.is_held());
}

/// As above, with the eviction between the offer and the receiver's poll: both ends look.
#[tokio::test(start_paused = true)]
async fn a_receiver_never_returns_a_claim_that_is_believed_no_more() {
    let (_, client, stage) = World::with_stage();
    let guard = first_of_eight(&client).await;
    let claim = guard.claim().clone();
    let next = queued(client.mutex("k").lock()).await;
    stage.act(Verb::Renew).hold_before();
    let verify = async move {
        let verified = guard.verify().await;
        (guard, verified)
    };
    drop(queued(Box::pin(verify)).await);
    // The dropped guard has handed the claim on; now its renewal learns that it is gone.
    evict(&client, "k").await;
    stage.act(Verb::Renew).go_on();
    settle().await;
    let guard = tokio::time::timeout(SECOND, next).await;
    let guard = guard.expect("stranded").unwrap();
    assert!(guard.claim() != &claim && guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_was_dropped_passes_on() {
    let (world, [client]) = World::clients();
    let guard = first_of_eight(&client).await;
    let gone = begun(client.mutex("k").lock()).await;
    let next = spawned(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    drop(gone);
    let before = tokio::time::Instant::now();
    let guard = served(next).await;
    assert!(before.elapsed() <= 2 * MS, "{:?}", before.elapsed());
    guard.unlock().await.unwrap();
    world.freed("k", MS).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_receiver_that_was_dropped_gives_the_claim_back() {
    let (world, [client]) = World::clients();
    let guard = first_of_eight(&client).await;
    let gone = queued(client.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    drop(gone);
    world.freed("k", MS).await;
}

#[tokio::test(start_paused = true)]
async fn locks_of_other_terms_are_not_handed_on() {
    let (_, client, stage) = World::with_stage();
    let owner = client.owner("o");
    let mutex = || client.mutex("k");
    for (case, other) in [
        ("fixed lease", mutex().fixed_lease(30 * SECOND)),
        ("longest hold", mutex().max_hold(SECOND)),
        ("shortest hold", mutex().at_least(MS)),
        ("lease", mutex().lease(20 * SECOND)),
        ("owner", mutex().owned_by(&owner)),
        ("label", mutex().label("another")),
    ] {
        let guard = first_of_eight(&client).await;
        let (claim, before) = (guard.claim().clone(), calls(&stage));
        let next = spawned(other.lock()).await;
        guard.unlock().await.unwrap();
        let guard = served(next).await;
        assert_ne!(guard.claim(), &claim, "{case}");
        assert!(calls(&stage) > before, "{case}");
        drop(guard);
        pass(10 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_of_a_multi_lock_is_not_handed_on() {
    let (_, [client]) = World::clients();
    let guards = multi([client.mutex("k")]).lock().await.unwrap();
    let claim = guards.members()[0].claim().clone();
    let next = spawned(client.mutex("k").lock()).await;
    guards.unlock().await.unwrap();
    assert_ne!(served(next).await.claim(), &claim);
}

#[tokio::test(start_paused = true)]
async fn turned_off_every_hand_over_is_the_stores() {
    let world = World::new();
    let (client, stage) = world.staged_with(Settings::default().passing(false));
    let guard = first_of_eight(&client).await;
    let (claim, before) = (guard.claim().clone(), calls(&stage));
    let guard = hand_over(&client, guard).await;
    assert_ne!(guard.claim(), &claim);
    assert_eq!(calls(&stage), before + 1);
}

/// V3: for as long as the evicted client may hand its claim on, nobody else is admitted.
#[tokio::test(start_paused = true)]
async fn an_eviction_bars_the_key_for_the_pass_window() {
    let (_, [here, elsewhere]) = World::clients();
    let _guard = here.mutex("k").lock().await.unwrap();
    evict(&elsewhere, "k").await;
    pass(9 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_none());
    pass(2 * MS).await;
    assert!(elsewhere.mutex("k").try_lock().await.unwrap().is_some());
}

/// V3: a grant that is handed on is never older than another's, also after an eviction.
#[tokio::test(start_paused = true)]
async fn after_an_eviction_nobody_is_granted_an_older_token_than_another() {
    let (_, [here, elsewhere]) = World::clients();
    let guard = first_of_eight(&here).await;
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(here.mutex("k").lock())).collect();
    let other = spawned(elsewhere.mutex("k").lock()).await;
    evict(&elsewhere, "k").await;
    let claim = guard.claim().clone();
    drop(guard);
    // Each gives its guard back, for as long as the next one is handed the claim at once.
    let mut handed_on = Vec::new();
    for next in waiting {
        settle().await;
        if !next.is_finished() {
            next.abort();
            continue;
        }
        let next = served(next).await;
        if next.claim() == &claim {
            handed_on.push(next.token());
        }
    }
    let token = other.await.unwrap().unwrap().token();
    assert!(
        handed_on.iter().all(|older| *older < token),
        "{handed_on:?} before {token:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_elsewhere_gets_the_key_while_local_tasks_hammer_it() {
    let (_, [here, elsewhere]) = World::clients();
    hammer(&here, 8, MS).await;
    pass(100 * MS).await;
    for _ in 0..20 {
        let before = tokio::time::Instant::now();
        let guard = elsewhere.mutex("k").lock().await.unwrap();
        assert!(before.elapsed() < 50 * MS, "{:?}", before.elapsed());
        guard.unlock().await.unwrap();
        pass(20 * MS).await;
    }
}

/// While others wait elsewhere, a client's run gives each of its tasks one turn, and not all grants that it could have.
#[tokio::test(start_paused = true)]
async fn a_client_does_not_keep_a_key_for_itself_while_another_waits() {
    let (_, [here, elsewhere]) = World::clients();
    let since = hammer(&here, 4, Duration::ZERO).await;
    let mut most = 0;
    for turn in 0..50 {
        let locked = tokio::time::timeout(10 * SECOND, elsewhere.mutex("k").lock());
        let guard = locked.await.expect("starved").unwrap();
        // The first turns are for learning that somebody waits.
        if turn >= 2 {
            most = most.max(since.load(Ordering::Relaxed));
        }
        // All of them come while it is held, and wait.
        settle().await;
        since.store(0, Ordering::Relaxed);
        guard.unlock().await.unwrap();
    }
    assert!((1..=2 * 4).contains(&most), "{most} turns in a row for 4 tasks");
}

#[tokio::test(start_paused = true)]
async fn a_first_run_after_others_gives_each_local_waiter_one_turn() {
    let (_, [here, elsewhere]) = World::clients();
    let held = elsewhere.mutex("k").lock().await.unwrap();
    let turns = hammer(&here, 3, Duration::ZERO).await;
    held.unlock().await.unwrap();
    let back = served(tokio::spawn(elsewhere.mutex("k").lock())).await;
    let before = turns.load(Ordering::Relaxed);
    assert!((1..=4).contains(&before), "{before} turns of 3 waiters");
    drop(back);
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_other_clients_go_before_a_late_local_waiter() {
    let (_, [here, elsewhere]) = World::clients();
    let held = elsewhere.mutex("k").lock().await.unwrap();
    let first = spawned(here.mutex("k").lock()).await;
    held.unlock().await.unwrap();
    let guard = served(first).await;
    let other = spawned(elsewhere.mutex("k").lock()).await;
    let late = spawned(here.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    settle().await;
    assert!(other.is_finished() && !late.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_long_on_the_way_is_not_given_to_whoever_came_meanwhile() {
    let (world, client, stage) = World::with_stage();
    let others = world.client();
    let held = others.mutex("k").lock().await.unwrap();
    let first = spawned(client.mutex("k").lock()).await;
    stage.act(Verb::Acquire).hold_after();
    held.unlock().await.unwrap();
    settle().await;
    // The store has granted the key to the client, which has not heard of it, and takes it away again.
    evict(&others, "k").await;
    pass(11 * MS).await;
    let between = others.mutex("k").lock().await.unwrap();
    let newer = between.token();
    between.unlock().await.unwrap();
    let newcomer = spawned(client.mutex("k").lock()).await;
    first.abort();
    settle().await;
    stage.act(Verb::Acquire).go_on();
    assert!(served(newcomer).await.token() > newer);
}
