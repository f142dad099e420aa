//! `Settings::connect_limit`: a client that connects before its store is ready.

use std::time::Duration;

use tenure::{Client, Error, Settings};
use tenure_servers::{Data, Redis};
use tokio::time::{Instant, timeout};

/// A limit that only a failing test reaches.
const LONG: Duration = Duration::from_secs(60);

async fn connect(url: &str, limit: Duration) -> Result<Client, Error> {
    tenure::connect_with(url, Settings::default().connect_limit(limit)).await
}

#[tokio::test]
async fn a_client_connects_once_its_server_has_started() {
    let mut server = Redis::start().expect("Redis starts");
    server.process().kill();
    let url = server.url();
    let refused = tenure::connect(&url).await.expect_err("nothing listens");
    assert!(refused.is_transient(), "{refused}");
    let connecting = tokio::spawn(async move { connect(&url, LONG).await });
    // sleep: no event shows that an attempt has failed.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!connecting.is_finished());
    server.restart(Data::Lost).expect("Redis starts again");
    let client = connecting.await.expect("no panic").expect("the server answers");
    drop(client.mutex("k").lock().await.expect("the key is free"));
}

#[tokio::test]
async fn a_server_that_is_busy_is_waited_for() {
    let server =
        Redis::start_with(&["--save", "", "--busy-reply-threshold", "10"], None).expect("Redis starts");
    let url = server.url();
    let script = "local from = redis.call('TIME')[1]; while redis.call('TIME')[1] - from < 2 do end";
    let running = tokio::task::spawn_blocking(move || server.ask(&["EVAL", script, "0"]).map(|_| server));
    let busy = async { while !matches!(tenure::connect(&url).await, Err(error) if error.is_transient()) {} };
    timeout(LONG, busy).await.expect("the script runs");
    let client = connect(&url, LONG).await.expect("the script ends");
    drop(client.mutex("k").lock().await.expect("the key is free"));
    running.await.expect("no panic").expect("the script has run");
}

#[tokio::test]
async fn a_silent_server_is_given_up_at_the_limit() {
    let mut server = Redis::start().expect("Redis starts");
    server.process().pause();
    let began = Instant::now();
    let silent = connect(&server.url(), Duration::from_millis(300)).await;
    let silent = silent.expect_err("the server is paused");
    assert!(
        silent.is_transient() && silent.to_string().contains("within 1s"),
        "{silent}"
    );
    // An attempt alone takes 5 s.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_limit_shorter_than_a_connection_takes_is_no_failure() {
    let server = Redis::start().expect("Redis starts");
    for limit in [Duration::ZERO, Duration::from_micros(1)] {
        let client = connect(&server.url(), limit).await.expect("the server answers");
        drop(client.mutex("k").try_lock().await.expect("the key is free"));
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_once() {
    let server = Redis::start_with(&["--save", "", "--requirepass", "right"], None).expect("Redis starts");
    let url = server.url().replace("redis://", "redis://:wrong@");
    let refused = timeout(LONG / 2, connect(&url, LONG)).await;
    let refused = refused.expect("it is not repeated").expect_err("it is wrong");
    assert!(!refused.is_transient(), "{refused}");
}

/// etcd's client fails at its first poll if a port refuses the connection, so the time-out alone never ended the attempts.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn refused_connections_end_at_the_limit() {
    // No server listens on port 1.
    let refused = connect("etcd://127.0.0.1:1", Duration::from_millis(100));
    let refused = timeout(LONG, refused).await.expect("the limit ends it");
    let refused = refused.expect_err("nothing listens");
    assert!(refused.to_string().contains("cannot be reached"), "{refused}");
}
