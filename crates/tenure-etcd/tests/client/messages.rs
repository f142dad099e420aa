//! Each call of the client, against a real etcd.

use crate::fixture::{assert_error, client, lease, put, start};
use tenure_backend::{Effect, Fault};
use tenure_etcd::client::{
    ALARMS, Client, Compare, DELETE_RANGE, DeleteRangeRequest, Empty, LeaseId, MEMBERS, NO_SPACE, Op,
    Operand, PUT, PutRequest, RANGE, REVOKE, RangeRequest, STATUS, is_missing_lease,
};

/// Reads the key `k`, or all keys, by whether a condition holds.
async fn holds(client: &Client, condition: Compare) -> bool {
    let (then, otherwise) = (RangeRequest::key("k"), RangeRequest::prefix(""));
    let txn = client.txn(vec![condition], vec![Op::Range(then)], vec![Op::Range(otherwise)]);
    let mut reply = txn.await.expect("a reply");
    assert_eq!(reply.take_last().len(), if reply.succeeded { 1 } else { 2 });
    reply.succeeded
}

#[tokio::test]
async fn a_key_is_written_read_and_deleted() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let lease = lease(&client, 60).await;
    let request = PutRequest {
        lease,
        ..put("k", "v")
    };
    let written = client.call(PUT, request).await.expect("it is written").header;
    let again = client
        .call(PUT, put("k", "w"))
        .await
        .expect("it is written")
        .header;
    let read = client
        .call(RANGE, RangeRequest::key("k"))
        .await
        .expect("it is read");
    let header = read.header;
    assert_eq!(read.kvs.len(), 1);
    let kv = &read.kvs[0];
    assert_eq!((&*kv.key, &*kv.value), (&b"k"[..], &b"w"[..]));
    assert_eq!(kv.create_revision, written.revision);
    assert_eq!(kv.mod_revision, again.revision);
    assert_eq!(kv.lease, 0, "a write without a lease takes the key off its lease");
    assert_eq!(header.revision, again.revision);
    assert!(header.raft_term > 0 && header.member_id > 0);
    for _ in 0..2 {
        let gone = DeleteRangeRequest { key: "k".into() };
        client
            .call(DELETE_RANGE, gone)
            .await
            .expect("a missing key is no error");
        let read = client.call(RANGE, RangeRequest::key("k")).await;
        assert_eq!(read.expect("it is read").kvs, []);
    }
}

#[tokio::test]
async fn a_range_is_sorted_and_limited() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    for key in ["a/2", "a/3", "a/1", "b/1"] {
        client.call(PUT, put(key, "value")).await.expect("it is written");
    }
    let newest = RangeRequest {
        keys_only: true,
        ..RangeRequest::prefix("a/").newest(2)
    };
    let read = client.call(RANGE, newest).await.expect("it is read");
    let keys: Vec<_> = read.kvs.iter().map(|kv| (&*kv.key, &*kv.value)).collect();
    assert_eq!(keys, [(&b"a/1"[..], &b""[..]), (b"a/3", b"")]);
    // The key that was created before another one.
    let before = RangeRequest {
        max_create_revision: read.kvs[1].create_revision - 1,
        ..RangeRequest::prefix("a/").newest(1)
    };
    let read = client.call(RANGE, before).await.expect("it is read");
    assert_eq!((read.kvs.len(), &*read.kvs[0].key), (1, &b"a/2"[..]));
    let first = RangeRequest {
        limit: 1,
        ..RangeRequest::prefix("")
    };
    assert_eq!(
        client.call(RANGE, first).await.expect("it is read").kvs[0].key,
        b"a/1"
    );
}

#[tokio::test]
async fn a_transaction_takes_the_branch_of_its_conditions() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    client.call(PUT, put("j", "")).await.expect("it is written");
    client.call(PUT, put("k", "v")).await.expect("it is written");
    client.call(PUT, put("k", "w")).await.expect("it is written");
    let kv = client
        .call(RANGE, RangeRequest::key("k"))
        .await
        .expect("it is read")
        .kvs[0]
        .clone();
    let (created, changed) = (kv.create_revision, kv.mod_revision);
    for (condition, expected) in [
        (Compare::new("k", Operand::CreateRevision(created)), true),
        (Compare::new("k", Operand::CreateRevision(changed)), false),
        (Compare::new("k", Operand::ModRevision(changed)), true),
        (Compare::new("k", Operand::ModRevision(created)), false),
        (Compare::new("k", Operand::Value(b"w".to_vec())), true),
        (Compare::new("k", Operand::Value(b"v".to_vec())), false),
        (Compare::new("x", Operand::CreateRevision(0)), true),
        (Compare::new("x", Operand::Value(Vec::new())), false),
        // A range without keys has the create revision 0, any other has not.
        (Compare::prefix("x", Operand::CreateRevision(created)), false),
        (Compare::prefix("x", Operand::CreateRevision(0)), true),
        (Compare::prefix("k", Operand::CreateRevision(0)), false),
        (Compare::prefix("", Operand::CreateRevision(created)), false),
    ] {
        assert_eq!(holds(&client, condition.clone()).await, expected, "{condition:?}");
    }
}

#[tokio::test]
async fn a_transaction_reads_its_own_writes() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let lease = lease(&client, 60).await;
    let write = Op::Put(PutRequest {
        lease,
        ..put("k", "v")
    });
    let delete = Op::DeleteRange(DeleteRangeRequest { key: "k".into() });
    let absent = Compare::new("k", Operand::CreateRevision(0));
    let read = Op::Range(RangeRequest::prefix("k"));
    let place = async || {
        let (then, otherwise) = (
            vec![write.clone(), read.clone()],
            vec![delete.clone(), read.clone()],
        );
        client
            .txn(vec![absent.clone()], then, otherwise)
            .await
            .expect("a reply")
    };
    let placed = place().await;
    assert!(placed.succeeded);
    assert_eq!(placed.responses.len(), 2);
    let found = placed.first(1).expect("its own write");
    assert_eq!(found.create_revision, placed.header.revision);
    assert_eq!(found.lease, lease);
    let mut removed = place().await;
    assert!(!removed.succeeded);
    assert_eq!(removed.take_last(), []);
}

#[tokio::test]
async fn a_transaction_of_conditions_alone_is_refused() {
    let client = client("etcd://127.0.0.1:1");
    let alone = Compare::new("k", Operand::CreateRevision(0));
    let refused = client.txn(vec![alone], vec![], vec![]).await;
    let refused = refused.expect_err("no operation");
    assert_error(&refused, (Fault::Invalid, Effect::None), "add a range");
}

#[tokio::test]
async fn a_lease_ends_with_its_keys() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let id = lease(&client, 60).await;
    for key in ["a", "b"] {
        let leased = PutRequest {
            lease: id,
            ..put(key, "")
        };
        client.call(PUT, leased).await.expect("it is written");
    }
    let left = async || {
        client
            .call(RANGE, RangeRequest::prefix(""))
            .await
            .expect("a reply")
            .kvs
    };
    assert_eq!(left().await.len(), 2);
    client.call(REVOKE, LeaseId { id }).await.expect("it ends");
    assert_eq!(left().await, []);
}

#[tokio::test]
async fn a_missing_lease_is_told_from_other_errors() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let leased = PutRequest {
        lease: 7,
        ..put("k", "")
    };
    let kept = PutRequest {
        ignore_lease: true,
        ..put("k", "")
    };
    let txn = client.txn(vec![], vec![Op::Put(leased.clone())], vec![]).await;
    for (refused, is_missing) in [
        (client.call(PUT, leased).await.map(drop), true),
        (txn.map(drop), true),
        (client.call(REVOKE, LeaseId { id: 7 }).await.map(drop), true),
        (client.call(PUT, kept).await.map(drop), false),
    ] {
        let refused = refused.expect_err("it is missing");
        assert_error(&refused, (Fault::Store, Effect::None), "etcd refuses the request");
        assert_eq!(is_missing_lease(&refused), is_missing, "{refused:?}");
    }
}

#[tokio::test]
async fn a_member_tells_its_state_and_the_clusters() {
    let Some(etcd) = start(&["--quota-backend-bytes", "100000"]) else {
        return;
    };
    let client = client(&etcd.url());
    let state = client.call(STATUS, Empty {}).await.expect("a state");
    assert!(state.version.starts_with("3."), "{state:?}");
    assert!(state.db_size > 0 && state.header.member_id > 0);
    let listed = client.call(MEMBERS, Empty {}).await.expect("a list").members;
    assert_eq!(
        listed.iter().map(|member| member.is_learner).collect::<Vec<_>>(),
        [false]
    );
    assert_eq!(client.call(ALARMS, Empty {}).await.expect("alarms").alarms, []);
    // The database reaches its quota.
    let large = put("k", &"v".repeat(100_000));
    client
        .call(PUT, large.clone())
        .await
        .map(drop)
        .unwrap_or_default();
    let refused = client.call(PUT, large).await.expect_err("the quota");
    assert_error(&refused, (Fault::Store, Effect::Unknown), "etcdctl alarm disarm");
    let alarms = client.call(ALARMS, Empty {}).await.expect("alarms").alarms;
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].alarm, NO_SPACE);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let large = put("k", &"v".repeat(2_000_000));
    let refused = client.call(PUT, large).await.expect_err("its size");
    assert_error(&refused, (Fault::Limit, Effect::None), "larger than etcd allows");
}
