//! What a Java service does at a key, by bare commands.

use tenure_backend::LockKey;

use super::look::Stage;

/// One of its threads, and another.
pub(crate) const JAVA: &str = "5c1a6e6e-0000-4000-8000-000000000000:42";
pub(crate) const OTHER: &str = "5c1a6e6e-0000-4000-8000-000000000000:43";

/// Java holds the key for so long.
pub(crate) fn java_holds(stage: &Stage, key: &LockKey, milliseconds: i64) {
    stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
    stage.ask(&["PEXPIRE", key.as_str(), &milliseconds.to_string()]);
}

/// A fair waiter of Java's comes to the queue, and counts as dead in so many milliseconds.
pub(crate) fn java_queues(stage: &Stage, key: &LockKey, owner: &str, patience: Option<i64>) {
    stage.ask(&["RPUSH", &format!("redisson_lock_queue:{{{key}}}"), owner]);
    if let Some(patience) = patience {
        let score = (stage.now_ms() + patience).to_string();
        stage.ask(&["ZADD", &format!("redisson_lock_timeout:{{{key}}}"), &score, owner]);
    }
}

/// Hears when that one is called as the head of the queue.
pub(crate) async fn listening_to(stage: &Stage, key: &LockKey, owner: &str) -> redis::aio::PubSub {
    let client = redis::Client::open(stage.redis.lock().url()).expect("a URL");
    let mut listening = client.get_async_pubsub().await.expect("the server answers");
    let channel = format!("redisson_lock__channel:{{{key}}}:{owner}");
    listening.subscribe(&channel).await.expect("the server answers");
    listening
}
