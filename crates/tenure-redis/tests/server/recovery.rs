//! A member of a quorum that has just started may have forgotten claims. It places none for the longest lease, unless
//! the operator vouches for its data, and it has data.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Finding, Invalidation, LockKey, Loss,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Severity, Successor,
};
use tenure_redis::{Member, RedisStore};
use tenure_servers::{Data, Disk, Redis};
use tenure_testkit::Subject;

const MAX_LEASE: Duration = Duration::from_secs(60);

/// More than the longest lease plus the second to which a server rounds its uptime.
const RECOVERED: Duration = Duration::from_secs(62);

fn claim(number: u64) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([7; 16]), number);
    let key = LockKey::new("k").expect("a good key");
    Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(30)))
}

async fn member(server: &Server) -> Arc<RedisStore> {
    let member = Member {
        max_lease: MAX_LEASE,
        durable: false,
    };
    let config = server.config().member(member);
    RedisStore::connect(config).await.expect("the server answers")
}

fn is_recovering(reply: &AcquireReply) -> bool {
    matches!(reply, AcquireReply::Recovering)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_member_places_no_claim_for_the_longest_lease() {
    let server = Server::start();
    let store = member(&server).await;
    assert!(is_recovering(&acquire(&store, &claim(1)).await.unwrap()));
    server.pass(MAX_LEASE / 2).await;
    assert!(is_recovering(&acquire(&store, &claim(1)).await.unwrap()));
    let late = member(&server).await;
    assert!(is_recovering(&acquire(&late, &claim(2)).await.unwrap()));
    let found = examine(&store).await;
    assert_finding(&found, "keeps out for another 3", Severity::Warning);
    server.pass(RECOVERED - MAX_LEASE / 2).await;
    let found = examine(&store).await;
    assert!(
        !found.iter().any(|one| one.what.contains("keeps out")),
        "{found:?}"
    );
    let granted = acquire(&store, &claim(1)).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted(_)), "{granted:?}");
    let waits = acquire(&late, &claim(2)).await.unwrap();
    assert!(matches!(waits, AcquireReply::Waiting { .. }), "{waits:?}");
}

/// A server that has recovered, its client, and a claim that holds the key.
async fn holding() -> (Server, Arc<RedisStore>, Arc<Claim>) {
    let server = Server::start();
    server.pass(RECOVERED).await;
    let store = member(&server).await;
    let held = claim(1);
    let granted = acquire(&store, &held).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    (server, store, held)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovering_member_renews_and_releases() {
    let (server, store, held) = holding().await;
    // Closes the connection and resets the server's uptime, but keeps the data.
    server
        .redis
        .lock()
        .restart(Data::Kept)
        .expect("the server starts again");
    let renewed = renewed_soon(&store, &held).await;
    assert!(matches!(renewed, RenewReply::Alive { .. }), "{renewed:?}");
    let not_after = store.clock().now() + Duration::from_secs(5);
    let request = ReleaseRequest {
        successor: Some(Successor {
            claim: claim(2),
            not_after,
        }),
        ..unlock_of(&held)
    };
    let released = release(&store, request).await;
    let ReleaseReply::Done { freed, successor, .. } = &released else {
        panic!("{released:?}");
    };
    assert_eq!(freed.len(), 1);
    assert!(successor.as_ref().is_some_and(is_recovering), "{released:?}");
    assert!(is_recovering(&acquire(&store, &claim(2)).await.unwrap()));
}

/// Renews a claim. Retries until the client has connected again.
async fn renewed_soon(store: &Arc<RedisStore>, claim: &Claim) -> RenewReply {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match renew(store, RenewRequest::of(claim)).await {
            RenewReply::Unknown(error) if std::time::Instant::now() < deadline => {
                assert!(error.is_transient(), "{error}");
                tokio::task::yield_now().await;
            }
            reply => return reply,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_restarted_empty_recovers_again() {
    let (server, store, held) = holding().await;
    server
        .redis
        .lock()
        .restart(Data::Lost)
        .expect("the server starts again");
    let renewed = renewed_soon(&store, &held).await;
    assert!(
        matches!(renewed, RenewReply::Gone(Loss::Missing | Loss::Expired)),
        "{renewed:?}"
    );
    assert!(is_recovering(&acquire(&store, &claim(2)).await.unwrap()));
}

/// A server that has granted a claim and syncs every write, after a restart; and a client that connects to it then.
async fn restarted(data: Data, durable: bool) -> (Redis, Arc<RedisStore>) {
    let mut redis = Redis::start_on(Disk::EveryWrite, None).expect("redis-server starts");
    let alone = RedisStore::connect(config(&redis.url()).expect("a URL"));
    let granted = acquire(&alone.await.expect("the server answers"), &claim(1)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    redis.restart(data).expect("the server starts again");
    let store = durable_member(&redis, durable).await;
    (redis, store)
}

async fn durable_member(redis: &Redis, durable: bool) -> Arc<RedisStore> {
    let member = Member {
        max_lease: MAX_LEASE,
        durable,
    };
    let config = config(&redis.url()).expect("a URL").member(member);
    RedisStore::connect(config).await.expect("the server answers")
}

/// The setting says nothing about the time before the restart: `appendfsync` may have been another, and the disk too.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_syncs_every_write_recovers_all_the_same() {
    let (_redis, store) = restarted(Data::Kept, false).await;
    assert!(is_recovering(&acquire(&store, &claim(2)).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_member_does_not_recover_if_it_has_its_data() {
    let (_redis, store) = restarted(Data::Kept, true).await;
    let reply = acquire(&store, &claim(2)).await;
    assert!(matches!(reply, Ok(AcquireReply::Waiting { .. })), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_member_recovers_if_it_restarted_empty() {
    let (_redis, store) = restarted(Data::Lost, true).await;
    assert!(is_recovering(&acquire(&store, &claim(2)).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_member_that_may_lose_writes_is_a_danger() {
    let redis = Redis::start_on(Disk::EveryWrite, None).expect("redis-server starts");
    let (durable, other) = (
        durable_member(&redis, true).await,
        durable_member(&redis, false).await,
    );
    let vouched = "`durable=true` vouches";
    let is_quiet = |found: &[Finding]| {
        let words = ["durable", "append-only", "held twice"];
        !found
            .iter()
            .any(|one| words.iter().any(|word| format!("{one:?}").contains(word)))
    };
    let found = examine(&durable).await;
    assert!(is_quiet(&found), "{found:?}");
    for (setting, value) in [
        ("no-appendfsync-on-rewrite", "yes"),
        ("appendfsync", "everysec"),
        ("appendonly", "no"),
    ] {
        redis
            .ask(&["CONFIG", "SET", setting, value])
            .expect("it can be set");
        let found = examine(&durable).await;
        assert_finding(&found, vouched, Severity::Danger);
        assert_finding(&found, &format!("{setting} {value}"), Severity::Danger);
        // A member that is not durable keeps out after a restart, so no restart can harm.
        let found = examine(&other).await;
        assert!(is_quiet(&found), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_member_never_recovers() {
    let server = Server::start();
    let store = RedisStore::connect(server.config())
        .await
        .expect("the server answers");
    assert!(matches!(
        acquire(&store, &claim(1)).await,
        Ok(AcquireReply::Granted(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_later_finds_its_server() {
    let mut redis = Redis::start_on(Disk::EveryWrite, None).expect("redis-server starts");
    redis.process().kill();
    let store = RedisStore::connect_later(config(&redis.url()).expect("a URL")).expect("no TLS");
    let error = acquire(&store, &claim(1)).await.expect_err("the server is down");
    assert!(error.is_transient(), "{error}");
    let mut invalidations = store
        .clone()
        .invalidations(ClientId::from_random([0; 16]))
        .expect("Redis has them");
    redis.restart(Data::Kept).expect("the server starts again");
    let connected = futures_util::StreamExt::next(&mut invalidations);
    let connected = tokio::time::timeout(Duration::from_secs(20), connected).await;
    assert_eq!(connected, Ok(Some(Invalidation::All)));
    assert!(matches!(
        acquire(&store, &claim(1)).await,
        Ok(AcquireReply::Granted(_))
    ));
}
