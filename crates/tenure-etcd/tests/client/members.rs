//! The change from a member that cannot serve to one that can.

use std::time::{Duration, Instant};

use crate::fixture::{
    SOON, assert_error, client, config, created, lease, put, soon, start, start_cluster, watch,
};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_etcd::client::{
    Client, Empty, GRANT, KEEP_ALIVE, LeaseGrantRequest, LeaseId, PUT, RANGE, RangeRequest, STATUS,
    WatchResponse,
};
use tenure_servers::{Data, Etcd, EtcdCluster, Proxy, Way, needs};

/// The ID of the member that the client talks to.
async fn current_member(client: &Client) -> u64 {
    let state = in_time(async || client.call(STATUS, Empty {}).await).await;
    state.header.member_id
}

/// The ID of a member.
async fn id_of(member: &Etcd) -> u64 {
    current_member(&client(&member.url())).await
}

#[tokio::test]
async fn a_call_goes_to_the_next_member_after_a_kill() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    let client = client(&cluster.url());
    let first = id_of(&cluster.members()[0]).await;
    assert_eq!(current_member(&client).await, first);
    client.call(PUT, put("k", "v")).await.expect("it is written");
    let mut watch = created(&client, "k").await;
    cluster.member_mut(0).process().kill();
    let ended = soon(watch.next()).await.expect_err("its member is killed");
    assert_error(
        &ended,
        (Fault::Unavailable, Effect::Unknown),
        "the connection broke",
    );
    // The others may have to elect a leader.
    cluster.leader().expect("a leader");
    assert_ne!(current_member(&client).await, first);
    let read = in_time(async || client.call(RANGE, RangeRequest::key("k")).await).await;
    assert_eq!(read.kvs[0].value, b"v");
    let mut watch = created(&client, "k").await;
    in_time(async || client.call(PUT, put("k", "w")).await).await;
    assert!(matches!(
        soon(watch.next()).await,
        Ok(WatchResponse { created: false, .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_after_a_restart_connects_again() {
    let Some(mut etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    client.call(PUT, put("k", "v")).await.expect("it is written");
    etcd.restart(Data::Kept).expect("it starts again");
    // The client has found the end of the connection, so it sends nothing on it.
    let read = client
        .call(RANGE, RangeRequest::key("k"))
        .await
        .expect("it is read");
    assert_eq!(read.kvs[0].value, b"v");
}

#[test]
fn a_connection_is_replaced_when_its_runtime_has_ended() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            client.call(PUT, put("k", "v")).await.expect("it is written");
            created(&client, "k").await;
        });
    }
}

#[tokio::test]
async fn a_host_that_refuses_connections_is_passed_over() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&format!("etcd://127.0.0.1:1,{}", etcd.address()));
    client
        .call(STATUS, Empty {})
        .await
        .expect("the second host answers");
}

#[tokio::test]
async fn a_silent_host_uses_its_share_of_the_time_alone() {
    let Some(etcd) = start(&[]) else { return };
    // It accepts connections and answers nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    let url = format!("etcd://{silent},{}?connect_timeout=2s", etcd.address());
    let begun = Instant::now();
    client(&url)
        .call(STATUS, Empty {})
        .await
        .expect("the second host answers");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let alone = client(&format!("etcd://{silent}?connect_timeout=100ms"));
    let refused = alone.call(STATUS, Empty {}).await.expect_err("it is silent");
    assert_error(
        &refused,
        (Fault::Unavailable, Effect::None),
        "did not answer within 100ms",
    );
}

#[tokio::test]
async fn waiting_callers_share_a_failed_attempt() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    let client = client(&format!("etcd://{silent}?connect_timeout=500ms"));
    let begun = Instant::now();
    let calls = (0..20).map(|_| client.call(STATUS, Empty {}));
    for result in futures_util::future::join_all(calls).await {
        let refused = result.expect_err("it is silent");
        assert_error(&refused, (Fault::Unavailable, Effect::None), "within 500ms");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_dropped_call_leaves_the_next_host_to_the_next_call() {
    let Some(etcd) = start(&[]) else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    // A share of one minute for each host. After 8 s, a ping finds that the first one is silent.
    let client = client(&format!("etcd://{silent},{}?connect_timeout=2m", etcd.address()));
    let dropped = tokio::time::timeout(Duration::from_millis(100), client.call(STATUS, Empty {})).await;
    assert!(dropped.is_err(), "the first host is silent");
    let answer = tokio::time::timeout(Duration::from_secs(5), client.call(STATUS, Empty {})).await;
    answer
        .expect("the first host is not tried again")
        .expect("the second host answers");
}

#[tokio::test]
async fn a_member_without_a_leader_is_left() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    let leader = cluster.leader().expect("a leader");
    let [next, last] = [(leader + 1) % 3, (leader + 2) % 3];
    let [first, second] = [leader, next].map(|number| cluster.members()[number].address());
    // One client at the member that stays, one that can go elsewhere.
    let url = format!("etcd://{first},{second}?command_timeout=1s&connect_timeout=2s");
    let [alone, free] = [client(&format!("etcd://{first}")), client(&url)];
    let mut watches = [created(&alone, "k").await, created(&free, "k").await];
    let (requests, mut replies) = free.stream(KEEP_ALIVE).await.expect("a stream");
    for number in [next, last] {
        cluster.member_mut(number).process().pause();
    }
    // Streams with `hasleader` end when their member has lost the leader.
    for watch in &mut watches {
        let ended = soon(watch.next()).await.expect_err("no leader");
        assert_error(&ended, (Fault::Unavailable, Effect::None), "has no leader");
    }
    requests.send(LeaseId { id: 1 }).expect("it is queued");
    let ended = soon(replies.next()).await.expect_err("no leader");
    assert_eq!(ended.fault(), Fault::Unavailable, "{ended:?}");
    let refused = alone.call(STATUS, Empty {}).await.expect_err("no leader");
    assert_error(&refused, (Fault::Unavailable, Effect::None), "has no leader");
    cluster.member_mut(next).process().resume();
    // Both have a leader again.
    assert!(lease_in_time(&free).await > 0);
    cluster.member_mut(last).process().resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_is_left_for_one_with_a_leader() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let cluster = EtcdCluster::start_divisible(&[]).await.expect("it starts");
    let leader = cluster.leader().expect("a leader");
    let followers @ [first, second] = [(leader + 1) % 3, (leader + 2) % 3];
    let hosts = followers.map(|number| cluster.members()[number].address().to_string());
    let client = client(&format!("etcd://{}", hosts.join(",")));
    let mut watch = created(&client, "k").await;
    // Usually the first one. A busy machine can cost a follower its leader for a moment, and so the client.
    let (cut, other) = match current_member(&client).await == id_of(&cluster.members()[first]).await {
        true => (first, second),
        false => (second, first),
    };
    cluster.cut_off(cut);
    let ended = soon(watch.next()).await.expect_err("no leader");
    assert_error(&ended, (Fault::Unavailable, Effect::None), "has no leader");
    assert!(lease_in_time(&client).await > 0);
    created(&client, "k").await;
    let there = id_of(&cluster.members()[other]).await;
    assert_eq!(current_member(&client).await, there);
    cluster.heal();
}

/// Makes a call as soon as the cluster can answer. A busy machine can cost it its leader for a moment.
async fn in_time<A>(call: impl AsyncFn() -> Result<A, BackendError>) -> A {
    let begun = Instant::now();
    loop {
        match call().await {
            Ok(reply) => return reply,
            Err(error) => assert!(error.is_transient() && begun.elapsed() < SOON, "{error:?}"),
        }
        // sleep: a cluster sends no event when it has a leader.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Grants a lease as soon as the cluster can.
async fn lease_in_time(client: &Client) -> i64 {
    let granted = in_time(async || client.call(GRANT, LeaseGrantRequest { ttl: 60 }).await).await;
    granted.id
}

#[tokio::test]
async fn an_unanswered_call_leaves_its_member() {
    let Some(mut cluster) = start_cluster() else {
        return;
    };
    let url = format!("{}?command_timeout=3s", cluster.url());
    let client = client(&url);
    let first = current_member(&client).await;
    cluster.member_mut(0).process().pause();
    let refused = client.call(PUT, put("k", "v")).await.expect_err("it is silent");
    assert_error(&refused, (Fault::Unavailable, Effect::Unknown), "within 3s");
    assert!(lease_in_time(&client).await > 0);
    assert_ne!(current_member(&client).await, first);
    cluster.member_mut(0).process().resume();
}

#[tokio::test]
async fn a_request_that_was_sent_is_not_repeated() {
    let Some(etcd) = start(&[]) else { return };
    let proxy = Proxy::start(etcd.address()).await.expect("a proxy");
    let hosts = client(&format!("etcd://{},{}", proxy.address(), etcd.address()));
    hosts
        .call(STATUS, Empty {})
        .await
        .expect("a connection through the proxy");
    let mut seen = created(&client(&etcd.url()), "k").await;
    proxy.hold(Way::ToClient);
    let (refused, _) = tokio::join!(hosts.call(PUT, put("k", "v")), async {
        // The reply is on its way when the connection breaks.
        assert!(matches!(
            soon(seen.next()).await,
            Ok(WatchResponse { created: false, .. })
        ));
        proxy.cut();
    });
    let refused = refused.expect_err("it has no reply");
    assert_error(
        &refused,
        (Fault::Unavailable, Effect::Unknown),
        "the connection broke",
    );
    let read = hosts
        .call(RANGE, RangeRequest::key("k"))
        .await
        .expect("the second host answers");
    assert_eq!(read.kvs[0].create_revision, read.kvs[0].mod_revision);
}

#[tokio::test]
async fn a_ping_finds_a_dead_connection() {
    let Some(etcd) = start(&[]) else { return };
    let proxy = Proxy::start(etcd.address()).await.expect("a proxy");
    let client = client(&format!("etcd://{}", proxy.address()));
    let mut watch = created(&client, "k").await;
    proxy.swallow(Way::ToServer);
    proxy.swallow(Way::ToClient);
    // 6 s until the ping, 2 s for its answer.
    let ended = soon(watch.next()).await.expect_err("nothing arrives");
    assert_error(
        &ended,
        (Fault::Unavailable, Effect::Unknown),
        "the connection broke",
    );
    proxy.heal();
    client.call(STATUS, Empty {}).await.expect("a new connection");
}

#[tokio::test]
async fn a_stream_that_hangs_can_be_left() {
    let Some(cluster) = start_cluster() else { return };
    let client = client(&cluster.url());
    let id = lease(&client, 60).await;
    let first = current_member(&client).await;
    let mut watch = created(&client, "k").await;
    client.stream(KEEP_ALIVE).await.expect("a stream").1.leave();
    let (requests, mut replies) = client.stream(KEEP_ALIVE).await.expect("a stream");
    requests.send(LeaseId { id }).expect("it is queued");
    let reply = soon(replies.next()).await.expect("a reply");
    assert_ne!(reply.header.member_id, first);
    // Other streams go on at the first member.
    client.call(PUT, put("k", "v")).await.expect("it is written");
    assert!(matches!(
        soon(watch.next()).await,
        Ok(WatchResponse { created: false, .. })
    ));
}

/// No name server is needed to tell that no host has this name: it begins with a hyphen.
#[tokio::test]
async fn a_host_that_is_not_known_is_named() {
    let refused = client("etcd://-nowhere")
        .call(STATUS, Empty {})
        .await
        .expect_err("no such host");
    assert_error(&refused, (Fault::Store, Effect::None), "-nowhere is not known");
    let refused = soon(watch(&client("etcd://127.0.0.1:1"), "k").next()).await;
    let refused = refused.expect_err("nothing listens there");
    assert_error(
        &refused,
        (Fault::Unavailable, Effect::None),
        "see whether it runs there",
    );
    assert_eq!(config("etcd://-nowhere").address(), "-nowhere:2379");
}
