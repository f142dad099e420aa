//! Java's fair waiters and ours in one queue: their order, and the removal of dead ones. Plain Redis commands play
//! Java.

use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{Fairness, LockKey, Mode, Phase, ReleaseRequest, ReleaseTarget};

/// Time to live of the queue's keys in milliseconds; -1 if they do not expire.
fn lives(fixture: &Fixture, key: &LockKey) -> i64 {
    let (queue, timeouts) = (fixture.left(&queue(key)), fixture.left(&timeouts(key)));
    assert!((queue - timeouts).abs() < 1_000, "{queue} and {timeouts}");
    queue
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn queued(fixture: &Fixture, key: &LockKey) -> String {
    fixture.text(&["LRANGE", &queue(key), "0", "-1"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_java_waiter_precedes_a_later_one_of_ours() {
    let (fixture, [a, b], key) = Fixture::two().await;
    let held = hold(&a, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    let behind = b.fair(&key, Mode::Exclusive);
    assert_eq!(b.waits(&behind).await, Some(1));
    // The score contains our lease of 60 s, and the 300 s that Java subtracts from every score when its waiter leaves.
    let ahead = fixture.score(&key, &behind.at.id.to_string());
    assert!((359_000..=360_000).contains(&ahead), "{ahead} ms");
    assert_eq!(a.release(&held).await.others, Some(2));
    b.waits(&behind).await;
    b.finds_busy(&key, Mode::Exclusive).await;
    // The Java waiter acquires the lock, and releases it below.
    remove_from_queue(&fixture, &key, JAVA);
    java_hold(&fixture, &key, 60_000);
    b.waits(&behind).await;
    fixture.command(&["DEL", key.as_str()]);
    b.granted_soon(&behind).await;
}

/// R26: a dead Java head is removed when its score has passed, and no waiter polls in a loop meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_java_head_is_removed_when_its_score_passes() {
    let (fixture, client, key) = Fixture::one().await;
    java_enqueue(&fixture, &key, JAVA, Some(3_000));
    java_enqueue(&fixture, &key, OTHER, Some(3_000));
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.fairness = fairness);
        // A Java waiter that gives up publishes nothing, so claims behind it poll every second.
        assert_eq!(poll_after(&client, &claim).await, SECOND, "{fairness:?}");
        client.withdraw(&claim).await;
    }
    fixture.store.pass(Duration::from_millis(3_001)).await;
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert!(!fixture.exists(&queue(&key)));
}

/// A fair unlock by Java wakes only the next fair waiter. It wakes no unfair claim of ours, so these poll.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_every_second_while_java_queues() {
    for server in [Server::start(), Server::batching()] {
        let fixture = Fixture::on(server).await;
        let ([holder, waiter], key) = (fixture.store.two().await, fixture.store.key());
        let held = hold(&holder, &key).await;
        let waiting = waiter.claim(&key, Mode::Exclusive);
        java_enqueue(&fixture, &key, JAVA, Some(330_000));
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind our holder");
        holder.release(&held).await;
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind Java's head");
    }
}

/// The first fair waiter has a lease of an hour, but an unfair claim behind it polls after its own, shorter lease.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_within_their_lease_behind_our_fair_head() {
    let (_stage, [holder, other], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    enqueue_for(&holder, &key, HOUR).await;
    holder.release(&held).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    assert_eq!(poll_after(&other, &waiting).await, waiting.lease);
}

/// Our waiter dies in a queue with a Java waiter. Our holder's release removes the dead one, and the queue's time to
/// live.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_waiter_outlives_our_dead_waiter_ahead() {
    let (fixture, [holder, dies], key) = Fixture::two().await;
    let held = hold_for(&holder, &key, HOUR).await;
    let dead = enqueue(&dies, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(3_600_000));
    fixture.store.pass(Duration::from_secs(70)).await;
    assert_eq!(queued(&fixture, &key), format!("{} {JAVA}", dead.at.id));
    let others = holder.release(&held).await.others;
    assert_eq!(others, Some(1), "the dead one is taken out");
    assert_eq!(queued(&fixture, &key), JAVA);
    assert_eq!(lives(&fixture, &key), -1, "Java's alone is for ever");
}

/// While Java holds the lock, the queue lives for a day longer than our waiters, because a Java waiter may join.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_waiter_behind_a_java_holder_outlives_ours() {
    let (fixture, [looks, dies], key) = Fixture::two().await;
    java_hold(&fixture, &key, 30_000);
    enqueue(&dies, &key).await;
    java_enqueue(&fixture, &key, OTHER, Some(3_600_000));
    fixture.store.pass(Duration::from_secs(70)).await;
    looks.waits(&looks.claim(&key, Mode::Exclusive)).await;
    assert_eq!(queued(&fixture, &key), OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_dead_waiter_behind_java_expires() {
    let (fixture, [holder, dies], key) = Fixture::two().await;
    hold(&holder, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    let dead = enqueue(&dies, &key).await;
    dies.stays_alive(&dead, Phase::Waiting).await;
    let (left, day) = (lives(&fixture, &key), 24 * 3_600_000);
    assert!((day..=day + 60_000).contains(&left), "{left} ms");
}

/// A poll of an unfair claim removes dead waiters. The queue then expires if a waiter of ours is left in it, and does
/// not if only Java waiters are.
#[tokio::test(flavor = "multi_thread")]
async fn a_swept_queue_lives_as_long_as_its_remaining_waiters() {
    let fixture = Fixture::new().await;
    let [holder, waiter] = fixture.store.two().await;
    for (javas, ours, is_left) in [(3_000, 60, false), (330_000, 3, true)] {
        let key = fixture.store.key();
        java_enqueue(&fixture, &key, JAVA, Some(javas));
        let waits = enqueue_for(&waiter, &key, Duration::from_secs(ours)).await;
        fixture.store.pass(Duration::from_millis(3_001)).await;
        holder.waits(&holder.claim(&key, Mode::Exclusive)).await;
        match is_left {
            true => assert_eq!(
                (queued(&fixture, &key).as_str(), lives(&fixture, &key)),
                (JAVA, -1)
            ),
            false => {
                assert_eq!(queued(&fixture, &key), waits.at.id.to_string());
                assert!(lives(&fixture, &key) > 0);
            }
        }
    }
}

/// R26: a first waiter without a score would block Java for ever. Our scripts remove it.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_a_score_is_removed() {
    let (fixture, client, key) = Fixture::one().await;
    java_enqueue(&fixture, &key, JAVA, None);
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert!(!fixture.exists(&queue(&key)));
}

/// R26: Java's scripts remove a head whose score has passed on Java's clock. If that head was a live waiter of ours,
/// its next poll puts it back at the head.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_waiter_removed_by_java_returns_to_the_head() {
    let (fixture, [holder, first, second], key) = Fixture::three().await;
    let held = hold(&holder, &key).await;
    let (one, two) = (enqueue(&first, &key).await, enqueue(&second, &key).await);
    remove_from_queue(&fixture, &key, &one.at.id.to_string());
    assert_eq!(first.waits(&one).await, Some(0));
    assert_eq!(second.waits(&two).await, Some(1));
    holder.release(&held).await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// R26: a head that gives up leaves no entry in the queue, and wakes the waiter behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_becomes_the_head_is_woken() {
    let (fixture, [holder, gone], key) = Fixture::two().await;
    let mut listening = subscribe_to_head(&fixture, &key, JAVA).await;
    let held = hold(&holder, &key).await;
    let withdrawn = enqueue(&gone, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    holder.release(&held).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    assert_eq!(queued(&fixture, &key), JAVA);
    assert_eq!(fixture.text(&["ZRANGE", &timeouts(&key), "0", "-1"]), JAVA);
    next_channel(&mut listening).await;
}

/// A poll by a waiter of ours removes a dead waiter of ours from any place, even if its score for Java has not passed.
#[tokio::test(flavor = "multi_thread")]
async fn our_dead_waiter_is_removed_when_its_lease_ends() {
    let (fixture, [holder, dead, alive], key) = Fixture::three().await;
    hold(&holder, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    let ghost = enqueue_for(&dead, &key, SECOND).await;
    let next = alive.fair(&key, Mode::Exclusive);
    assert_eq!(alive.waits(&next).await, Some(2));
    fixture.store.pass(SECOND + Duration::from_millis(1)).await;
    assert_eq!(alive.waits(&next).await, Some(1));
    dead.has_ended(&ghost).await;
}

/// A Java waiter joins after the last poll of our waiter. The holder's next renewal or release sets the queue's expiry
/// at least a day ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_waiter_outlives_our_last_poll_before_it() {
    let fixture = Fixture::new().await;
    let day = 24 * 3_600_000;
    for is_renewed in [true, false] {
        let ([holder, dies], key) = (fixture.store.two().await, fixture.store.key());
        let held = hold(&holder, &key).await;
        dies.waits(&dies.fair(&key, Mode::Exclusive)).await;
        assert!(lives(&fixture, &key) < day, "nothing of the dead is for long");
        java_enqueue(&fixture, &key, JAVA, Some(330_000));
        if is_renewed {
            holder.stays_alive(&held, Phase::Granted).await;
        } else {
            holder.release(&held).await;
        }
        assert!(lives(&fixture, &key) >= day, "{is_renewed}");
    }
}

/// A holder whose lease outlasts all leases in the queue extends the queue's expiry with each renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_lives_as_long_as_the_holder() {
    let (fixture, [holder, waits], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    enqueue_for(&waits, &key, 3 * SECOND).await;
    fixture.store.pass(Duration::from_secs(40)).await;
    holder.stays_alive(&held, Phase::Granted).await;
    assert!(lives(&fixture, &key) > 60_000);
}

/// With a Java waiter at the head, a poll of ours does not read the scores of all waiters ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_poll_costs_the_same_behind_a_long_java_queue() {
    const MANY: usize = 200;
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    hold(&holder, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    let claims: Vec<_> = (0..MANY).map(|_| waiter.fair(&key, Mode::Exclusive)).collect();
    fixture.command(&["CONFIG", "RESETSTAT"]);
    for _ in ["placed", "polled"] {
        for claim in &claims {
            waiter.waits(claim).await;
        }
    }
    let looks = fixture.call_count("zscore");
    assert!((1..20 * 2 * MANY).contains(&looks), "{looks}");
    // The scores still include the 300 s that Java will subtract.
    for claim in [&claims[0], &claims[MANY - 1]] {
        let ahead = fixture.score(&key, &claim.at.id.to_string());
        assert!((325_000..=360_000).contains(&ahead), "{ahead} ms");
    }
}

/// Puts waiters of another client of ours at the end of the queue. Their leases end at `ends`.
fn crowd(fixture: &Fixture, key: &LockKey, count: usize, ends: i64) {
    let enqueue = "for i = 1, ARGV[1] do local owner = ARGV[3] .. i redis.call('RPUSH', KEYS[1], owner) \
                   redis.call('ZADD', KEYS[2], ARGV[2], owner) redis.call('ZADD', KEYS[3], ARGV[2], owner) end";
    let keys = [queue(key), timeouts(key), tagged("tenure_waiters", key)];
    let (count, ends) = (count.to_string(), ends.to_string());
    let uuid = "00000000-0000-4000-8000-000000000000:";
    fixture.command(&[
        "EVAL", enqueue, "3", &keys[0], &keys[1], &keys[2], &count, &ends, uuid,
    ]);
}

/// The shortest time, in microseconds of the server, that a release and the poll of the next head took together, with
/// `waiters` others behind them in the queue.
async fn handover_cost(waiters: usize) -> usize {
    const ROUNDS: usize = 10;
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let mut held = (&holder, hold(&holder, &key).await);
    let mut queue = Vec::new();
    for _ in 0..ROUNDS {
        queue.push(enqueue(&waiter, &key).await);
    }
    crowd(&fixture, &key, waiters, fixture.now_ms() + 3_600_000);
    let mut costs = Vec::new();
    for next in queue {
        fixture.command(&["CONFIG", "RESETSTAT"]);
        held.0.release(&held.1).await;
        waiter.granted(&next).await;
        costs.push(fixture.command_stat("evalsha", "usec"));
        held = (&waiter, next);
    }
    costs.into_iter().min().expect("there are rounds")
}

/// The bound is far above noise: reading 10,000 waiters takes 50 times as long as a release does.
#[tokio::test(flavor = "multi_thread")]
async fn a_handover_costs_the_same_before_ten_thousand_waiters() {
    let (few, many) = (handover_cost(10).await, handover_cost(10_000).await);
    assert!(many < 5 * few, "{few} and {many} microseconds");
}

/// Each call removes a hundred dead waiters, and the live one behind them polls until it is the head.
#[tokio::test(flavor = "multi_thread")]
async fn dead_waiters_are_removed_a_hundred_at_a_time() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    crowd(&fixture, &key, 1_000, fixture.now_ms() - 1);
    let next = waiter.fair(&key, Mode::Exclusive);
    assert_eq!(waiter.waits(&next).await, Some(900));
    let mut listening = subscribe_to_head(&fixture, &key, &next.at.id.to_string()).await;
    holder.release(&held).await;
    assert_eq!(fixture.number(&["LLEN", &queue(&key)]), 801);
    next_channel(&mut listening).await;
    assert_eq!(poll_after(&waiter, &next).await, Duration::from_millis(1));
    waiter.granted_soon(&next).await;
    assert!(!fixture.exists(&queue(&key)));
}

/// When a Java waiter ahead leaves, Java subtracts 300 s from every score. Our next polls do not add them again.
#[tokio::test(flavor = "multi_thread")]
async fn polls_respect_what_java_subtracts_from_a_score() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    hold(&holder, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    java_enqueue(&fixture, &key, OTHER, Some(630_000));
    let behind = enqueue(&waiter, &key).await;
    let owner = behind.at.id.to_string();
    java_enqueue(&fixture, &key, THIRD, Some(990_000));
    for (left, goes) in [(600_000, JAVA), (300_000, OTHER), (0, owner.as_str())] {
        for _ in 0..2 {
            waiter.waits(&behind).await;
            let slack = fixture.score(&key, &owner) - 60_000;
            assert!((left - 1_000..=left).contains(&slack), "{slack} ms, not {left}");
        }
        remove_from_queue(&fixture, &key, goes);
        fixture.command(&["ZINCRBY", &timeouts(&key), "-300000", &owner]);
    }
}

/// An older Java client that wakes during the cooldown finds the key held. Without another wake-up it sleeps for
/// minutes.
#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_woken_again_after_the_cooldown() {
    let (fixture, [holder, operator], key) = Fixture::two().await;
    let mut listening = subscribe_to_head(&fixture, &key, JAVA).await;
    hold(&holder, &key).await;
    java_enqueue(&fixture, &key, JAVA, Some(330_000));
    let barred = ReleaseRequest {
        cooldown: Duration::from_millis(20),
        ..eviction_of(ReleaseTarget::All(key.clone()))
    };
    assert_eq!(operator.send_release(barred).await.freed.len(), 1);
    assert!(!fixture.exists(key.as_str()), "the cooldown is over");
    for _ in ["at once", "and when the cooldown was over"] {
        next_channel(&mut listening).await;
    }
}

/// The wake-up makes the waiter poll at once, and so learn of its eviction.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_fair_waiter_is_woken() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    hold(&holder, &key).await;
    let waiting = waiter.fair(&key, Mode::Exclusive);
    let mut listening = subscribe_to_head(&fixture, &key, &waiting.at.id.to_string()).await;
    waiter.waits(&waiting).await;
    holder.evict(&waiting, "an operator").await.freed_it(&waiting);
    next_channel(&mut listening).await;
    waiter.has_ended(&waiting).await;
}
