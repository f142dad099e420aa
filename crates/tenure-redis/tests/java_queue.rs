//! Java's fair waiters and ours in one queue, Java's part played by bare commands: who is next, what becomes of the dead.
//! With real Redisson the same is tried in the interoperability tests.

mod stage;

use std::time::Duration;

use stage::*;
use tenure_backend::{Fairness, LockKey, Mode, Phase, ReleaseRequest, ReleaseTarget};

/// How long the queue lives by itself, in milliseconds; -1 is for ever.
fn lives(stage: &Stage, key: &LockKey) -> i64 {
    let (queue, timeouts) = (stage.left(&queue(key)), stage.left(&timeouts(key)));
    assert!((queue - timeouts).abs() < 1_000, "{queue} and {timeouts}");
    queue
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn queued(stage: &Stage, key: &LockKey) -> String {
    stage.text(&["LRANGE", &queue(key), "0", "-1"])
}

#[tokio::test(flavor = "multi_thread")]
async fn javas_fair_waiter_goes_before_ours_that_came_later() {
    let (stage, [a, b], key) = Stage::two().await;
    let held = holds(&a, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let behind = b.fair(&key, Mode::Exclusive);
    assert_eq!(b.waits(&behind).await, Some(1));
    // Java takes its patience off every score when it goes.
    let ahead = stage.score(&key, &behind.at.id.to_string());
    assert!((359_000..=360_000).contains(&ahead), "{ahead} ms");
    assert_eq!(a.release(&held).await.others, Some(2));
    b.waits(&behind).await;
    b.finds_busy(&key, Mode::Exclusive).await;
    // Java takes its turn, and ends it.
    leaves_queue(&stage, &key, JAVA);
    java_holds(&stage, &key, 60_000);
    b.waits(&behind).await;
    stage.ask(&["DEL", key.as_str()]);
    b.granted_soon(&behind).await;
}

/// R26: a dead head of Java's is left when its score has passed, and nobody spins meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_head_of_java_makes_nobody_spin_and_goes_with_its_score() {
    let (stage, client, key) = Stage::one().await;
    java_queues(&stage, &key, JAVA, Some(3_000));
    java_queues(&stage, &key, OTHER, Some(3_000));
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.fairness = fairness);
        // A waiter of Java's publishes nothing when it gives up.
        assert_eq!(poll_after(&client, &claim).await, SECOND, "{fairness:?}");
        client.withdraw(&claim).await;
    }
    stage.trial.pass(Duration::from_millis(3_001)).await;
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert!(!stage.exists(&queue(&key)));
}

/// A fair unlock of Java's wakes the next fair waiter and no other, so the last one wakes no claim of ours.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_every_second_beside_javas_fair_waiters() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
        let held = holds(&holder, &key).await;
        let waiting = waiter.claim(&key, Mode::Exclusive);
        java_queues(&stage, &key, JAVA, Some(330_000));
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind our holder");
        holder.release(&held).await;
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind Java's head");
    }
}

/// The head has an hour: the claim behind does not sleep for longer than its own lease.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_within_their_lease_behind_our_fair_head() {
    let (_stage, [holder, other], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    queues_for(&holder, &key, HOUR).await;
    holder.release(&held).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    assert_eq!(poll_after(&other, &waiting).await, waiting.lease);
}

/// It stands in the list in which ours stood alone, and nobody but us could make that last.
#[tokio::test(flavor = "multi_thread")]
async fn javas_waiter_does_not_end_with_ours_that_died_before_it() {
    let (stage, [holder, dies], key) = Stage::two().await;
    let held = holds_for(&holder, &key, HOUR).await;
    let dead = queues(&dies, &key).await;
    java_queues(&stage, &key, JAVA, Some(3_600_000));
    stage.trial.pass(Duration::from_secs(70)).await;
    assert_eq!(queued(&stage, &key), format!("{} {JAVA}", dead.at.id));
    let others = holder.release(&held).await.others;
    assert_eq!(others, Some(1), "the dead one is taken out");
    assert_eq!(queued(&stage, &key), JAVA);
    assert_eq!(lives(&stage, &key), -1, "Java's alone is for ever");
}

/// While Java holds, the next to queue may be Java's.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_holder_of_javas_its_waiter_does_not_end_with_ours() {
    let (stage, [looks, dies], key) = Stage::two().await;
    java_holds(&stage, &key, 30_000);
    queues(&dies, &key).await;
    java_queues(&stage, &key, OTHER, Some(3_600_000));
    stage.trial.pass(Duration::from_secs(70)).await;
    looks.waits(&looks.claim(&key, Mode::Exclusive)).await;
    assert_eq!(queued(&stage, &key), OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn ours_that_died_behind_java_is_not_left_for_ever() {
    let (stage, [holder, dies], key) = Stage::two().await;
    holds(&holder, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let dead = queues(&dies, &key).await;
    dies.stays_alive(&dead, Phase::Waiting).await;
    let (left, day) = (lives(&stage, &key), 24 * 3_600_000);
    assert!((day..=day + 60_000).contains(&left), "{left} ms");
}

/// Whoever comes by takes the dead out, without queueing itself: what is left ends, or does not, as is its own way.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_was_swept_lives_as_long_as_those_who_are_left_in_it() {
    let stage = Stage::new().await;
    let [holder, waiter] = stage.trial.two().await;
    for (javas, ours, is_left) in [(3_000, 60, false), (330_000, 3, true)] {
        let key = stage.trial.key();
        java_queues(&stage, &key, JAVA, Some(javas));
        let waits = queues_for(&waiter, &key, Duration::from_secs(ours)).await;
        stage.trial.pass(Duration::from_millis(3_001)).await;
        holder.waits(&holder.claim(&key, Mode::Exclusive)).await;
        match is_left {
            true => assert_eq!((queued(&stage, &key).as_str(), lives(&stage, &key)), (JAVA, -1)),
            false => {
                assert_eq!(queued(&stage, &key), waits.at.id.to_string());
                assert!(lives(&stage, &key) > 0);
            }
        }
    }
}

/// R26: such a head would hold Java up for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_a_score_is_taken_away() {
    let (stage, client, key) = Stage::one().await;
    java_queues(&stage, &key, JAVA, None);
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert!(!stage.exists(&queue(&key)));
}

/// R26: Java's scripts take a head away whose score is past by Java's clock. Ours is not sent to the tail for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_waiter_that_java_took_for_dead_is_first_again() {
    let (stage, [holder, first, second], key) = Stage::three().await;
    let held = holds(&holder, &key).await;
    let (one, two) = (queues(&first, &key).await, queues(&second, &key).await);
    leaves_queue(&stage, &key, &one.at.id.to_string());
    assert_eq!(first.waits(&one).await, Some(0));
    assert_eq!(second.waits(&two).await, Some(1));
    holder.release(&held).await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// R26: whoever gives up leaves neither an entry nor anybody asleep.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_becomes_the_head_is_called() {
    let (stage, [holder, gone], key) = Stage::two().await;
    let mut listening = listening_to(&stage, &key, JAVA).await;
    let held = holds(&holder, &key).await;
    let withdrawn = queues(&gone, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    holder.release(&held).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    assert_eq!(queued(&stage, &key), JAVA);
    assert_eq!(stage.text(&["ZRANGE", &timeouts(&key), "0", "-1"]), JAVA);
    called_on(&mut listening).await;
}

/// Ours that is dead is swept by ours that lives, wherever it stands, whatever Java's score says.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_of_ours_goes_with_its_own_lease() {
    let (stage, [holder, dead, alive], key) = Stage::three().await;
    holds(&holder, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let ghost = queues_for(&dead, &key, SECOND).await;
    let next = alive.fair(&key, Mode::Exclusive);
    assert_eq!(alive.waits(&next).await, Some(2));
    stage.trial.pass(SECOND + Duration::from_millis(1)).await;
    assert_eq!(alive.waits(&next).await, Some(1));
    dead.has_ended(&ghost).await;
}

/// Ours that died before it looked again did not see that Java had come: who holds sees it.
#[tokio::test(flavor = "multi_thread")]
async fn javas_waiter_that_came_after_the_last_look_of_ours_does_not_end_with_it() {
    let stage = Stage::new().await;
    let day = 24 * 3_600_000;
    for is_renewed in [true, false] {
        let ([holder, dies], key) = (stage.trial.two().await, stage.trial.key());
        let held = holds(&holder, &key).await;
        dies.waits(&dies.fair(&key, Mode::Exclusive)).await;
        assert!(lives(&stage, &key) < day, "nothing of the dead is for long");
        java_queues(&stage, &key, JAVA, Some(330_000));
        if is_renewed {
            holder.stays_alive(&held, Phase::Granted).await;
        } else {
            holder.release(&held).await;
        }
        assert!(lives(&stage, &key) >= day, "{is_renewed}");
    }
}

/// Who holds longer than anybody's lease in the queue keeps it with each renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_lives_as_long_as_who_holds() {
    let (stage, [holder, waits], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    queues_for(&waits, &key, 3 * SECOND).await;
    stage.trial.pass(Duration::from_secs(40)).await;
    holder.stays_alive(&held, Phase::Granted).await;
    assert!(lives(&stage, &key) > 60_000);
}

/// One of Java's in the queue costs none of ours a look at all who stand before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_behind_java_costs_each_poll_no_more_than_a_short_one() {
    const MANY: usize = 200;
    let (stage, [holder, waiter], key) = Stage::two().await;
    holds(&holder, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let claims: Vec<_> = (0..MANY).map(|_| waiter.fair(&key, Mode::Exclusive)).collect();
    stage.ask(&["CONFIG", "RESETSTAT"]);
    for _ in ["placed", "polled"] {
        for claim in &claims {
            waiter.waits(claim).await;
        }
    }
    let looks = stage.calls_of("zscore");
    assert!((1..20 * 2 * MANY).contains(&looks), "{looks}");
    // All of them still count with Java's patience.
    for claim in [&claims[0], &claims[MANY - 1]] {
        let ahead = stage.score(&key, &claim.at.id.to_string());
        assert!((325_000..=360_000).contains(&ahead), "{ahead} ms");
    }
}

/// Java takes its patience off every score when it goes. What is left of ours is its lease, also after the next poll.
#[tokio::test(flavor = "multi_thread")]
async fn what_java_takes_off_a_score_stays_off() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    holds(&holder, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    java_queues(&stage, &key, OTHER, Some(630_000));
    let behind = queues(&waiter, &key).await;
    let owner = behind.at.id.to_string();
    java_queues(&stage, &key, THIRD, Some(990_000));
    for (left, goes) in [(600_000, JAVA), (300_000, OTHER), (0, owner.as_str())] {
        for _ in 0..2 {
            waiter.waits(&behind).await;
            let slack = stage.score(&key, &owner) - 60_000;
            assert!((left - 1_000..=left).contains(&slack), "{slack} ms, not {left}");
        }
        leaves_queue(&stage, &key, goes);
        stage.ask(&["ZINCRBY", &timeouts(&key), "-300000", &owner]);
    }
}

/// A fair waiter of an older Java that finds the key held sleeps for as long as it gives another at the head.
#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_called_again_when_the_bar_of_an_eviction_is_over() {
    let (stage, [holder, operator], key) = Stage::two().await;
    let mut listening = listening_to(&stage, &key, JAVA).await;
    holds(&holder, &key).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let barred = ReleaseRequest {
        cooldown: Duration::from_millis(20),
        ..eviction(ReleaseTarget::All(key.clone()))
    };
    assert_eq!(operator.depart(barred).await.freed.len(), 1);
    assert!(!stage.exists(key.as_str()), "the cooldown is over");
    for _ in ["at once", "and when the cooldown was over"] {
        called_on(&mut listening).await;
    }
}

/// It may queue again at once, and need not find out at its next poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_that_is_evicted_is_called() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    holds(&holder, &key).await;
    let waiting = waiter.fair(&key, Mode::Exclusive);
    let mut listening = listening_to(&stage, &key, &waiting.at.id.to_string()).await;
    waiter.waits(&waiting).await;
    holder.evict(&waiting, "an operator").await.freed_it(&waiting);
    called_on(&mut listening).await;
    waiter.has_ended(&waiting).await;
}
