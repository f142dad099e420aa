//! What a Java service does at a key, by bare commands, and how a lock's other keys are called.

use futures_util::StreamExt;
use tenure_backend::{Claim, LockKey};

use super::look::{Stage, soon};

/// Three of its threads.
pub(crate) const JAVA: &str = "5c1a6e6e-0000-4000-8000-000000000000:42";
pub(crate) const OTHER: &str = "5c1a6e6e-0000-4000-8000-000000000000:43";
pub(crate) const THIRD: &str = "5c1a6e6e-0000-4000-8000-000000000000:44";

/// The list of those who queue.
pub(crate) fn queue(key: &LockKey) -> String {
    beside("redisson_lock_queue", key)
}

/// Until when Java believes them to be alive.
pub(crate) fn timeouts(key: &LockKey) -> String {
    beside("redisson_lock_timeout", key)
}

pub(crate) fn channel(key: &LockKey) -> String {
    beside("redisson_lock__channel", key)
}

/// The channel on which the head of a queue is called.
pub(crate) fn head_channel(key: &LockKey, owner: &str) -> String {
    format!("{}:{owner}", channel(key))
}

/// What is written down of a claim.
pub(crate) fn record(claim: &Claim) -> String {
    format!("{}:{}", beside("tenure_claim", &claim.at.key), claim.at.id)
}

/// A key beside a lock, in the same slot.
pub(crate) fn beside(kind: &str, key: &LockKey) -> String {
    match key.as_str().contains('{') {
        true => format!("{kind}:{key}"),
        false => format!("{kind}:{{{key}}}"),
    }
}

/// Java holds the key for so long.
pub(crate) fn java_holds(stage: &Stage, key: &LockKey, milliseconds: i64) {
    stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
    stage.ask(&["PEXPIRE", key.as_str(), &milliseconds.to_string()]);
}

/// A fair waiter of Java's comes to the queue, and counts as dead in so many milliseconds.
pub(crate) fn java_queues(stage: &Stage, key: &LockKey, owner: &str, patience: Option<i64>) {
    stage.ask(&["RPUSH", &queue(key), owner]);
    if let Some(patience) = patience {
        let score = (stage.now_ms() + patience).to_string();
        stage.ask(&["ZADD", &timeouts(key), &score, owner]);
    }
}

/// A waiter leaves the queue, as Java's scripts take one out.
pub(crate) fn leaves_queue(stage: &Stage, key: &LockKey, owner: &str) {
    stage.ask(&["LREM", &queue(key), "1", owner]);
    stage.ask(&["ZREM", &timeouts(key), owner]);
}

/// Hears when that one is called as the head of the queue.
pub(crate) async fn listening_to(stage: &Stage, key: &LockKey, owner: &str) -> redis::aio::PubSub {
    let mut listening = listening(stage).await;
    listening
        .subscribe(head_channel(key, owner))
        .await
        .expect("the server answers");
    listening
}

/// Hears nothing so far.
pub(crate) async fn listening(stage: &Stage) -> redis::aio::PubSub {
    let client = redis::Client::open(stage.redis.lock().url()).expect("a URL");
    client.get_async_pubsub().await.expect("the server answers")
}

/// The channel on which a wake-up comes.
pub(crate) async fn called_on(listening: &mut redis::aio::PubSub) -> String {
    let message = soon(listening.on_message().next()).await;
    let message = message.expect("the connection lasts");
    assert_eq!(message.get_payload_bytes(), b"0");
    message.get_channel_name().to_owned()
}
