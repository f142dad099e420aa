//! Mutual exclusion: claims hold a key together only if `Mode::admits` allows it.

use std::sync::Arc;

use tenure_backend::{AcquireReply, Fairness, Instant, LockKey, Mode, Phase, SystemClock};
use tokio::task::JoinSet;

use super::fixture::permits;
use super::{Fixture, TestClient};
use crate::{EventKind, Recorder, check};

/// Two exclusive claims never hold a key together, even of different clients.
pub async fn two_exclusive_claims_are_never_granted_together(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Exclusive).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    b.finds_busy(&key, Mode::Exclusive).await;
    b.finds_busy(&key, Mode::Exclusive).await;
    a.release(&held).await.freed_it(&held);
    b.finds_free(&key, Mode::Exclusive).await;
}

/// Two claims of the same owner exclude each other: the client counts re-entries in memory, without a second claim.
pub async fn two_claims_of_one_owner_exclude_each_other(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Exclusive).await);
    let (client, key) = (fixture.client().await, fixture.key());
    client.holds(&key, Mode::Exclusive).await;
    client.finds_busy(&key, Mode::Exclusive).await;
}

/// Readers hold a key together, and a writer waits for the last of them.
pub async fn readers_hold_together_and_exclude_a_writer(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await);
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let first = a.holds(&key, Mode::Read).await;
    let second = b.holds(&key, Mode::Read).await;
    c.finds_busy(&key, Mode::Write).await;
    a.release(&first).await.freed_it(&first);
    c.finds_busy(&key, Mode::Write).await;
    b.release(&second).await.freed_it(&second);
    c.finds_free(&key, Mode::Write).await;
}

/// A writer excludes readers and other writers.
pub async fn a_writer_excludes_readers_and_writers(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Write).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let held = a.holds(&key, Mode::Write).await;
    b.finds_busy(&key, Mode::Read).await;
    b.finds_busy(&key, Mode::Write).await;
    a.release(&held).await.freed_it(&held);
    b.finds_free(&key, Mode::Read).await;
}

/// A downgrade lets readers in at once and keeps writers out. The claim keeps its tokens, and a repeated downgrade is
/// safe (B20).
pub async fn a_downgraded_writer_holds_together_with_readers(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Write).await);
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let held = a.claim(&key, Mode::Write);
    let granted = a.granted(&held).await;
    b.finds_busy(&key, Mode::Read).await;
    a.downgrades(&held).await;
    let reader = b.claim(&key, Mode::Read);
    let read = b.granted_soon(&reader).await;
    if let (Some(before), Some(after)) = (granted.tokens, read.tokens) {
        assert!(
            before.last() < after.first(),
            "a later reader has a greater token"
        );
    }
    c.finds_busy(&key, Mode::Write).await;
    let status = c.status(&key).await.expect("the key is held");
    assert!(
        status.holders.iter().all(|holder| holder.mode == Mode::Read),
        "{status:?}"
    );
    a.downgrades(&held).await;
    a.stays_alive(&held, Phase::Granted).await;
    assert_eq!(a.granted(&held).await.tokens, granted.tokens);
    b.release(&reader).await.freed_it(&reader);
    c.finds_busy(&key, Mode::Write).await;
    a.release(&held).await.freed_it(&held);
    c.finds_free(&key, Mode::Write).await;
}

/// A downgrade does not release the claim, so it lets in neither a waiting writer nor a reader that queued after the
/// writer (B11, B20).
pub async fn a_downgrade_lets_no_waiting_writer_hold_the_key(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Write, Fairness::Fifo).await);
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let held = a.fair(&key, Mode::Write);
    a.granted(&held).await;
    let writer = b.queues(&key, Mode::Write).await;
    let reader = c.queues(&key, Mode::Read).await;
    a.downgrades(&held).await;
    b.waits(&writer).await;
    c.waits(&reader).await;
    a.downgrades(&held).await;
    a.release(&held).await.freed_it(&held);
    b.granted_soon(&writer).await;
    c.waits(&reader).await;
}

/// A semaphore grants all its permits, and not one more.
pub async fn permits_are_granted_up_to_the_semaphores_size(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(permits(1, 3)).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let two = a.holds(&key, permits(2, 3)).await;
    b.finds_busy(&key, permits(2, 3)).await;
    let one = b.holds(&key, permits(1, 3)).await;
    b.finds_busy(&key, permits(1, 3)).await;
    a.release(&two).await.freed_it(&two);
    a.finds_busy(&key, permits(3, 3)).await;
    a.finds_free(&key, permits(2, 3)).await;
    b.release(&one).await.freed_it(&one);
    a.finds_free(&key, permits(3, 3)).await;
}

/// Several clients acquire and release one key at full speed. No two hold it at the same time, and the tokens rise.
pub async fn competing_clients_never_hold_at_the_same_time(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Exclusive).await);
    let key = fixture.key();
    let recorder = Recorder::new(Arc::new(SystemClock));
    let mut workers = JoinSet::new();
    for owner in 0..4 {
        workers.spawn(compete(
            fixture.client().await,
            recorder.clone(),
            key.clone(),
            owner,
        ));
    }
    workers.join_all().await;
    let judged = check(recorder.history());
    let summary = judged.unwrap_or_else(|violations| panic!("{}", violations[0]));
    assert!(summary.acquired > 0, "at least one attempt was granted");
}

async fn compete(client: TestClient, recorder: Recorder, key: LockKey, owner: u64) {
    const TURNS: u64 = 40;
    let mode = Mode::Exclusive;
    for attempt in owner * TURNS..(owner + 1) * TURNS {
        let claim = client.claim(&key, mode);
        let key = key.clone();
        recorder.record(attempt, EventKind::Invoked { key, owner, mode });
        match client.acquire(&claim).await {
            AcquireReply::Granted(grant) => {
                let (token, until) = (grant.tokens.map(|run| run.first()), Instant::NEVER);
                recorder.record(attempt, EventKind::Acquired { token, until });
                tokio::task::yield_now().await;
                recorder.record(attempt, EventKind::ReleaseInvoked);
            }
            // If a quorum's members are split between the competitors, the quorum ends the claims. A request that is
            // repeated after that gets `Ended`.
            AcquireReply::Waiting { .. } | AcquireReply::Recovering | AcquireReply::Ended => {}
            other => panic!("the reply to a new claim is {other:?}"),
        }
        client.withdraw(&claim).await;
        recorder.record(attempt, EventKind::Released);
        tokio::task::yield_now().await;
    }
}

/// The store compares keys byte for byte, so similar keys are different keys (R17).
pub async fn similar_keys_do_not_exclude_each_other(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Exclusive).await);
    let client = fixture.client().await;
    let keys = [
        "order",
        "Order",
        "ORDER",
        "order ",
        " order",
        "order:",
        "order:1",
        "order%",
        "order_",
        "{order}",
        "örder",
        "o\u{308}rder",
        "order/",
        "order/..",
        "ord",
        "orderorder",
    ]
    .map(|name| LockKey::new(name).expect("a name without control characters"));
    for key in &keys {
        client.holds(key, Mode::Exclusive).await;
    }
    for key in &keys {
        client.finds_busy(key, Mode::Exclusive).await;
    }
}
