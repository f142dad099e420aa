//! Java's fair waiters and ours in one queue, Java's part played by bare commands: who is next, what becomes of the dead.
//! With real Redisson the same is tried in the interoperability tests.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use stage::{JAVA, OTHER, Server, Stage, java_holds, java_queues, listening_to, soon};
use tenure_backend::{Claim, Fairness, Holder, LockKey, Mode, Phase, Standing};
use tenure_testkit::suite::Client;

/// How long the queue lives by itself, in milliseconds; -1 is for ever.
fn lives(stage: &Stage, key: &LockKey) -> i64 {
    let [queue, timeouts] = ["redisson_lock_queue", "redisson_lock_timeout"]
        .map(|kind| stage.number(&["PTTL", &format!("{kind}:{{{key}}}")]));
    assert!((queue - timeouts).abs() < 1_000, "{queue} and {timeouts}");
    queue
}

const SECOND: Duration = Duration::from_secs(1);

/// How soon a claim that waits is to poll again.
async fn poll_after(client: &Client, claim: &Arc<Claim>) -> Duration {
    match client.acquire(claim).await {
        Standing::Waiting { poll_after, .. } => poll_after,
        other => panic!("{other:?}"),
    }
}

fn queued(stage: &Stage, key: &LockKey) -> String {
    stage.text(&["LRANGE", &format!("redisson_lock_queue:{{{key}}}"), "0", "-1"])
}

#[tokio::test(flavor = "multi_thread")]
async fn javas_fair_waiter_goes_before_ours_that_came_later() {
    let stage = Stage::new().await;
    let ([a, b], key) = (stage.trial.two().await, stage.trial.key());
    let held = a.fair(&key, Mode::Exclusive);
    a.granted(&held).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let behind = b.fair(&key, Mode::Exclusive);
    assert_eq!(b.waits(&behind).await, Some(1));
    // Java takes its patience off every score when it goes.
    let score = stage.number(&[
        "ZSCORE",
        &format!("redisson_lock_timeout:{{{key}}}"),
        &behind.at.id.to_string(),
    ]);
    let ahead = score - stage.now_ms();
    assert!((359_000..=360_000).contains(&ahead), "{ahead} ms");
    let departed = a.release(&held).await;
    assert_eq!(departed.others, Some(2));
    b.waits(&behind).await;
    b.finds_busy(&key, Mode::Exclusive).await;
    // Java takes its turn, and ends it.
    stage.ask(&["LPOP", &format!("redisson_lock_queue:{{{key}}}")]);
    stage.ask(&["ZREM", &format!("redisson_lock_timeout:{{{key}}}"), JAVA]);
    java_holds(&stage, &key, 60_000);
    b.waits(&behind).await;
    stage.ask(&["DEL", key.as_str()]);
    b.granted_soon(&behind).await;
}

/// R26: a dead head of Java's is left when its score has passed, and nobody spins meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_head_of_java_makes_nobody_spin_and_goes_with_its_score() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    java_queues(&stage, &key, JAVA, Some(3_000));
    java_queues(&stage, &key, OTHER, Some(3_000));
    for fairness in [Fairness::Unfair, Fairness::Fifo] {
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.fairness = fairness);
        match client.acquire(&claim).await {
            Standing::Waiting { poll_after, .. } => {
                let ms = poll_after.as_millis();
                // A waiter of Java's publishes nothing when it gives up.
                assert_eq!(ms, 1_000, "{fairness:?}");
            }
            other => panic!("{other:?}"),
        }
        client.withdraw(&claim).await;
    }
    stage.trial.pass(Duration::from_millis(3_001)).await;
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert_eq!(
        stage.number(&["EXISTS", &format!("redisson_lock_queue:{{{key}}}")]),
        0
    );
}

/// A fair unlock of Java's wakes the next fair waiter and no other, so the last one wakes no claim of ours.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_every_second_beside_javas_fair_waiters() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
        let (held, waiting) = (
            holder.claim(&key, Mode::Exclusive),
            waiter.claim(&key, Mode::Exclusive),
        );
        holder.granted(&held).await;
        java_queues(&stage, &key, JAVA, Some(330_000));
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind our holder");
        holder.release(&held).await;
        assert_eq!(poll_after(&waiter, &waiting).await, SECOND, "behind Java's head");
    }
}

/// The head has an hour: the claim behind does not sleep for longer than its own lease.
#[tokio::test(flavor = "multi_thread")]
async fn unfair_claims_poll_within_their_lease_behind_our_fair_head() {
    let stage = Stage::new().await;
    let ([holder, other], key) = (stage.trial.two().await, stage.trial.key());
    let head = holder.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = Duration::from_secs(3_600);
    });
    let held = holder.claim(&key, Mode::Exclusive);
    holder.granted(&held).await;
    holder.waits(&head).await;
    holder.release(&held).await;
    let waiting = other.claim(&key, Mode::Exclusive);
    assert_eq!(poll_after(&other, &waiting).await, waiting.lease);
}

/// It stands in the list in which ours stood alone, and nobody but us could make that last.
#[tokio::test(flavor = "multi_thread")]
async fn javas_waiter_does_not_end_with_ours_that_died_before_it() {
    let stage = Stage::new().await;
    let ([holder, dies], key) = (stage.trial.two().await, stage.trial.key());
    let held = holder.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_secs(3_600)
    });
    holder.granted(&held).await;
    let dead = dies.fair(&key, Mode::Exclusive);
    dies.waits(&dead).await;
    java_queues(&stage, &key, JAVA, Some(3_600_000));
    stage.trial.pass(Duration::from_secs(70)).await;
    assert_eq!(queued(&stage, &key), format!("{} {JAVA}", dead.at.id));
    assert_eq!(
        holder.release(&held).await.others,
        Some(1),
        "the dead one is taken out"
    );
    assert_eq!(queued(&stage, &key), JAVA);
    assert_eq!(lives(&stage, &key), -1, "Java's alone is for ever");
}

/// While Java holds, the next to queue may be Java's.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_holder_of_javas_its_waiter_does_not_end_with_ours() {
    let stage = Stage::new().await;
    let ([looks, dies], key) = (stage.trial.two().await, stage.trial.key());
    java_holds(&stage, &key, 30_000);
    let dead = dies.fair(&key, Mode::Exclusive);
    dies.waits(&dead).await;
    java_queues(
        &stage,
        &key,
        "00000000-0000-4000-8000-000000000000:8",
        Some(3_600_000),
    );
    stage.trial.pass(Duration::from_secs(70)).await;
    looks.waits(&looks.claim(&key, Mode::Exclusive)).await;
    assert_eq!(queued(&stage, &key), "00000000-0000-4000-8000-000000000000:8");
}

#[tokio::test(flavor = "multi_thread")]
async fn ours_that_died_behind_java_is_not_left_for_ever() {
    let stage = Stage::new().await;
    let ([holder, dies], key) = (stage.trial.two().await, stage.trial.key());
    holder.granted(&holder.claim(&key, Mode::Exclusive)).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let dead = dies.fair(&key, Mode::Exclusive);
    dies.waits(&dead).await;
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
        let waits = waiter.claim_as(&key, Mode::Exclusive, |claim| {
            claim.fairness = Fairness::Fifo;
            claim.lease = Duration::from_secs(ours);
        });
        waiter.waits(&waits).await;
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
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    java_queues(&stage, &key, JAVA, None);
    client.granted(&client.fair(&key, Mode::Exclusive)).await;
    assert_eq!(
        stage.number(&["EXISTS", &format!("redisson_lock_queue:{{{key}}}")]),
        0
    );
}

/// R26: Java's scripts take a head away whose score is past by Java's clock. Ours is not sent to the tail for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_waiter_that_java_took_for_dead_is_first_again() {
    let stage = Stage::new().await;
    let ([holder, first, second], key) = (stage.trial.three().await, stage.trial.key());
    let held = holder.fair(&key, Mode::Exclusive);
    let [one, two] = [&first, &second].map(|client| client.fair(&key, Mode::Exclusive));
    holder.granted(&held).await;
    first.waits(&one).await;
    second.waits(&two).await;
    stage.ask(&["LPOP", &format!("redisson_lock_queue:{{{key}}}")]);
    stage.ask(&[
        "ZREM",
        &format!("redisson_lock_timeout:{{{key}}}"),
        &one.at.id.to_string(),
    ]);
    assert_eq!(first.waits(&one).await, Some(0));
    assert_eq!(second.waits(&two).await, Some(1));
    holder.release(&held).await;
    second.waits(&two).await;
    first.granted_soon(&one).await;
}

/// R26: whoever gives up leaves neither an entry nor anybody asleep.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_becomes_the_head_is_called() {
    let stage = Stage::new().await;
    let ([holder, gone], key) = (stage.trial.two().await, stage.trial.key());
    let mut listening = listening_to(&stage, &key, JAVA).await;
    let (held, withdrawn) = (
        holder.fair(&key, Mode::Exclusive),
        gone.fair(&key, Mode::Exclusive),
    );
    holder.granted(&held).await;
    gone.waits(&withdrawn).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    holder.release(&held).await;
    gone.withdraw(&withdrawn).await.freed_it(&withdrawn);
    assert_eq!(
        stage.text(&["LRANGE", &format!("redisson_lock_queue:{{{key}}}"), "0", "-1"]),
        JAVA
    );
    assert_eq!(
        stage.text(&["ZRANGE", &format!("redisson_lock_timeout:{{{key}}}"), "0", "-1"]),
        JAVA
    );
    let mut messages = listening.on_message();
    let heard = soon(futures_util::StreamExt::next(&mut messages)).await;
    assert_eq!(heard.expect("the connection lasts").get_payload_bytes(), b"0");
}

/// Ours that is dead is swept by ours that lives, wherever it stands, whatever Java's score says.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_of_ours_goes_with_its_own_lease() {
    let stage = Stage::new().await;
    let ([holder, dead, alive], key) = (stage.trial.three().await, stage.trial.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let ghost = dead.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = stage.trial.brief();
    });
    dead.waits(&ghost).await;
    let next = alive.fair(&key, Mode::Exclusive);
    assert_eq!(alive.waits(&next).await, Some(2));
    stage
        .trial
        .pass(stage.trial.brief() + Duration::from_millis(1))
        .await;
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
        let held = holder.claim(&key, Mode::Exclusive);
        holder.granted(&held).await;
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
    let stage = Stage::new().await;
    let ([holder, waits], key) = (stage.trial.two().await, stage.trial.key());
    let held = holder.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_secs(60)
    });
    holder.granted(&held).await;
    let waiting = waits.claim_as(&key, Mode::Exclusive, |claim| {
        claim.fairness = Fairness::Fifo;
        claim.lease = Duration::from_secs(3);
    });
    waits.waits(&waiting).await;
    stage.trial.pass(Duration::from_secs(40)).await;
    holder.stays_alive(&held, Phase::Granted).await;
    assert!(lives(&stage, &key) > 60_000);
}

/// One of Java's in the queue costs none of ours a look at all who stand before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_behind_java_costs_each_poll_no_more_than_a_short_one() {
    const MANY: i64 = 200;
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    holder.granted(&holder.claim(&key, Mode::Exclusive)).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let claims: Vec<_> = (0..MANY).map(|_| waiter.fair(&key, Mode::Exclusive)).collect();
    stage.ask(&["CONFIG", "RESETSTAT"]);
    for _ in ["placed", "polled"] {
        for claim in &claims {
            waiter.waits(claim).await;
        }
    }
    let stats = stage.text(&["INFO", "commandstats"]);
    let looks = stats
        .split_whitespace()
        .find_map(|line| line.strip_prefix("cmdstat_zscore:calls="))
        .and_then(|rest| rest.split(',').next()?.parse::<i64>().ok());
    assert!(looks.expect("they look") < 20 * 2 * MANY, "{looks:?}");
    // All of them still count with Java's patience.
    let timeouts = format!("redisson_lock_timeout:{{{key}}}");
    for claim in [&claims[0], &claims[claims.len() - 1]] {
        let ahead = stage.number(&["ZSCORE", &timeouts, &claim.at.id.to_string()]) - stage.now_ms();
        assert!((325_000..=360_000).contains(&ahead), "{ahead} ms");
    }
}

/// Java takes its patience off every score when it goes. What is left of ours is its lease, also after the next poll.
#[tokio::test(flavor = "multi_thread")]
async fn what_java_takes_off_a_score_stays_off() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    holder.granted(&holder.claim(&key, Mode::Exclusive)).await;
    let (queue, timeouts) = (
        format!("redisson_lock_queue:{{{key}}}"),
        format!("redisson_lock_timeout:{{{key}}}"),
    );
    java_queues(&stage, &key, JAVA, Some(330_000));
    java_queues(&stage, &key, OTHER, Some(630_000));
    let behind = waiter.fair(&key, Mode::Exclusive);
    let owner = behind.at.id.to_string();
    waiter.waits(&behind).await;
    java_queues(
        &stage,
        &key,
        "00000000-0000-4000-8000-000000000000:8",
        Some(990_000),
    );
    for left in [600_000, 300_000, 0] {
        for _ in 0..2 {
            waiter.waits(&behind).await;
            let slack = stage.number(&["ZSCORE", &timeouts, &owner]) - stage.now_ms() - 60_000;
            assert!((left - 1_000..=left).contains(&slack), "{slack} ms, not {left}");
        }
        let gone = stage.text(&["LPOP", &queue]);
        stage.ask(&["ZREM", &timeouts, &gone]);
        stage.ask(&["ZINCRBY", &timeouts, "-300000", &owner]);
    }
}

/// A fair waiter of an older Java that finds the key held sleeps for as long as it gives another at the head.
#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_called_again_when_the_bar_of_an_eviction_is_over() {
    let stage = Stage::new().await;
    let ([holder, operator], key) = (stage.trial.two().await, stage.trial.key());
    let mut listening = listening_to(&stage, &key, JAVA).await;
    holder.granted(&holder.claim(&key, Mode::Exclusive)).await;
    java_queues(&stage, &key, JAVA, Some(330_000));
    let evicted = operator
        .depart(tenure_backend::Departure {
            who: Holder::All(key.clone()),
            cause: tenure_backend::Cause::Evicted { by: None },
            heir: None,
            bar: Duration::from_millis(20),
        })
        .await;
    assert_eq!(evicted.freed.len(), 1);
    assert_eq!(stage.number(&["EXISTS", key.as_str()]), 0, "the bar is over");
    let mut messages = listening.on_message();
    for _ in ["at once", "and when the bar was over"] {
        let heard = soon(futures_util::StreamExt::next(&mut messages)).await;
        assert_eq!(heard.expect("the connection lasts").get_payload_bytes(), b"0");
    }
}

/// It may queue again at once, and need not find out at its next poll.
#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_that_is_evicted_is_called() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    holder.granted(&holder.claim(&key, Mode::Exclusive)).await;
    let waiting = waiter.fair(&key, Mode::Exclusive);
    let mut listening = listening_to(&stage, &key, &waiting.at.id.to_string()).await;
    waiter.waits(&waiting).await;
    holder.evict(&waiting, "an operator").await.freed_it(&waiting);
    let mut messages = listening.on_message();
    let heard = soon(futures_util::StreamExt::next(&mut messages)).await;
    assert_eq!(heard.expect("the connection lasts").get_payload_bytes(), b"0");
    waiter.has_ended(&waiting).await;
}
