//! The stream that keeps leases alive.

use crate::fixture::{assert_error, client, lease, put, soon, start};
use tenure_backend::{Effect, Fault};
use tenure_etcd::client::{KEEP_ALIVE, LeaseId, PUT, PutRequest, RANGE, REVOKE, RangeRequest};

#[tokio::test]
async fn many_leases_are_kept_alive_on_one_stream() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let mut leases = Vec::new();
    for _ in 0..100 {
        leases.push(lease(&client, 60).await);
    }
    let (requests, mut replies) = client.stream(KEEP_ALIVE).await.expect("a stream");
    for lease in &leases {
        requests.send(LeaseId { id: *lease }).expect("it is queued");
    }
    let mut kept = Vec::new();
    for _ in &leases {
        let reply = soon(replies.next()).await.expect("a reply");
        assert_eq!(reply.ttl, 60);
        assert!(reply.header.raft_term > 0);
        kept.push(reply.id);
    }
    assert_eq!(kept, leases);
}

#[tokio::test]
async fn a_lease_lasts_while_it_is_kept_alive() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let [kept, other] = [lease(&client, 1).await, lease(&client, 1).await];
    let (requests, mut replies) = client.stream(KEEP_ALIVE).await.expect("a stream");
    for (key, lease) in [("kept", kept), ("other", other)] {
        let leased = PutRequest {
            lease,
            ..put(key, "")
        };
        client.call(PUT, leased).await.expect("it is written");
    }
    let is_there = async |key| {
        let read = client.call(RANGE, RangeRequest::key(key)).await;
        !read.expect("a reply").kvs.is_empty()
    };
    while is_there("other").await {
        requests.send(LeaseId { id: kept }).expect("it is queued");
        assert_eq!(soon(replies.next()).await.expect("a reply").ttl, 1);
    }
    assert!(is_there("kept").await);
}

#[tokio::test]
async fn a_revoked_lease_is_answered_without_time() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let id = lease(&client, 60).await;
    let (requests, mut replies) = client.stream(KEEP_ALIVE).await.expect("a stream");
    requests.send(LeaseId { id }).expect("it is queued");
    assert_eq!(soon(replies.next()).await.expect("a reply").ttl, 60);
    client.call(REVOKE, LeaseId { id }).await.expect("it ends");
    requests.send(LeaseId { id }).expect("it is queued");
    let reply = soon(replies.next()).await.expect("a reply");
    assert_eq!((reply.id, reply.ttl), (id, 0));
}

#[tokio::test]
async fn a_killed_member_ends_the_stream() {
    let Some(mut etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let id = lease(&client, 60).await;
    let (requests, mut replies) = client.stream(KEEP_ALIVE).await.expect("a stream");
    requests.send(LeaseId { id }).expect("it is queued");
    soon(replies.next()).await.expect("a reply");
    etcd.process().kill();
    let ended = soon(replies.next()).await.expect_err("it is killed");
    assert_error(
        &ended,
        (Fault::Unavailable, Effect::Unknown),
        "the connection broke",
    );
    let ended = soon(replies.next()).await.expect_err("it has ended");
    assert_error(&ended, (Fault::Unavailable, Effect::None), "open it again");
}
