//! After a reconnect, the client soon renews its claims and finds lost ones. `engine/loss.rs` tests the renewal with many
//! claims.

use std::time::Duration;

use tenure::{Guard, Settings};
use tenure_servers::{Data, Redis};

/// Much less than 10 s, after which a lease of 30 s is renewed anyway.
const SOON: Duration = Duration::from_secs(5);

/// A lock with a lease of 30 s that was just renewed.
async fn hold(server: &Redis, own_thread: bool) -> Guard {
    let settings = Settings::default().own_thread(own_thread);
    let client = tenure::connect_with(&server.url(), settings)
        .await
        .expect("the server runs");
    let guard = client.mutex("k").lock().await.expect("the key is free");
    guard.verify().await.expect("the server knows the lock");
    guard
}

async fn assert_lost(guard: &Guard) {
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    lost.expect("the holder learns before its next renewal");
}

#[tokio::test]
async fn a_holder_learns_soon_after_its_connection_was_killed() {
    let server = Redis::start().expect("Redis starts");
    for own_thread in [false, true] {
        let guard = hold(&server, own_thread).await;
        server.ask(&["FLUSHALL"]).expect("the server answers");
        server
            .ask(&["CLIENT", "KILL", "TYPE", "normal"])
            .expect("the server answers");
        assert_lost(&guard).await;
    }
}

#[tokio::test]
async fn a_holder_learns_soon_after_its_server_lost_its_data() {
    let mut server = Redis::start().expect("Redis starts");
    let guard = hold(&server, false).await;
    server.restart(Data::Lost).expect("Redis starts again");
    assert_lost(&guard).await;
}
