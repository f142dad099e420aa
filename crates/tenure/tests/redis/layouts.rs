//! The layouts `plain` and `spring` through the public API, next to another library's client that uses plain commands.

use std::time::{Duration, Instant};

use tenure::{Client, Error};
use tenure_servers::Redis;

/// Much less than the lease of 60 s. A waiter that slept until the lease ended would not get the lock within this time.
const SOON: Duration = Duration::from_secs(5);

async fn connect(server: &Redis, query: &str) -> Client {
    let url = format!("{}?{query}", server.url());
    tenure::connect(&url).await.expect("the server runs")
}

#[tokio::test]
async fn a_lock_waits_for_a_foreign_holder_and_excludes_it() {
    let server = Redis::start().expect("Redis starts");
    for (query, name) in [
        ("layout=plain", "k"),
        ("layout=spring&registry=orders", "orders:k"),
    ] {
        let client = connect(&server, query).await;
        let ask = |command: &[&str]| server.ask(command).expect("the server answers");
        ask(&["SET", name, "another client", "NX", "PX", "60000"]);
        assert!(client.mutex("k").try_lock().await.expect("it answers").is_none());
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.mutex("k").lock_within(SOON).await }
        });
        // Waits until the waiter's first attempt was refused: then the waiter has a connection that listens.
        while !ask(&["PUBSUB", "CHANNELS"]).contains("channel") {
            tokio::task::yield_now().await;
        }
        let released = Instant::now();
        ask(&["DEL", name]);
        let guard = waiting.await.expect("no panic").expect("it polls");
        assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
        let taken = ask(&["SET", name, "another client", "NX", "PX", "60000"]);
        assert!(!taken.contains("OK"), "{taken}");
        guard.unlock().await.expect("it is ours");
        assert!(ask(&["SET", name, "another client", "NX", "PX", "60000"]).contains("OK"));
        for result in [
            client.mutex("f").fair().try_lock().await.map(drop),
            client.rwlock("r").try_read().await.map(drop),
            client.semaphore("s", 2).try_acquire().await.map(drop),
        ] {
            let error = result.expect_err("this layout has unfair mutexes only");
            assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
            assert!(error.to_string().contains("its layout `redisson`"), "{error}");
        }
        client.close(SOON).await.expect("it closes");
    }
}
