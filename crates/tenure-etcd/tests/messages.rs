//! Each call of the client, against a real etcd.

mod fixture;

use fixture::{assert_error, client, lease, put, start};
use tenure_backend::{Effect, Fault};
use tenure_etcd::client::{
    Client, Compare, DeleteRangeRequest, LeaseId, Op, OpReply, Operand, PutRequest, RangeRequest, Relation,
    SortOrder, SortTarget, TxnRequest, TxnResponse, is_missing_lease,
};

/// The keys of the reply to the first operation of a transaction, a range.
fn keys(reply: &TxnResponse) -> Vec<&[u8]> {
    match &reply.responses[0].reply {
        Some(OpReply::Range(range)) => range.kvs.iter().map(|kv| &*kv.key).collect(),
        other => panic!("no range: {other:?}"),
    }
}

/// Reads the key `k`, or all keys, by whether a condition holds.
async fn holds(client: &Client, condition: Compare) -> bool {
    let (then, otherwise) = (RangeRequest::key("k"), RangeRequest::prefix(""));
    let txn = TxnRequest::new(vec![condition], vec![Op::Range(then)], vec![Op::Range(otherwise)]);
    let reply = client.txn(txn).await.expect("a reply");
    assert_eq!(keys(&reply).len(), if reply.succeeded { 1 } else { 2 });
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
    let written = client
        .put(request)
        .await
        .expect("it is written")
        .header
        .expect("one");
    let again = client
        .put(put("k", "w"))
        .await
        .expect("it is written")
        .header
        .expect("one");
    let read = client.range(RangeRequest::key("k")).await.expect("it is read");
    let header = read.header.expect("a header");
    assert_eq!(read.kvs.len(), 1);
    let kv = &read.kvs[0];
    assert_eq!((&*kv.key, &*kv.value), (&b"k"[..], &b"w"[..]));
    assert_eq!(kv.create_revision, written.revision);
    assert_eq!(kv.mod_revision, again.revision);
    assert_eq!(kv.lease, 0, "a write without a lease takes the key off its lease");
    assert_eq!(header.revision, again.revision);
    assert!(header.raft_term > 0 && header.member_id > 0);
    let gone = DeleteRangeRequest {
        key: "k".into(),
        ..DeleteRangeRequest::default()
    };
    let deleted = client.delete_range(gone.clone()).await.expect("it is deleted");
    assert_eq!(deleted.deleted, 1);
    assert_eq!(client.delete_range(gone).await.expect("a reply").deleted, 0);
}

#[tokio::test]
async fn a_range_is_sorted_and_limited() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    for key in ["a/2", "a/3", "a/1", "b/1"] {
        client.put(put(key, "value")).await.expect("it is written");
    }
    let newest = RangeRequest {
        limit: 2,
        keys_only: true,
        ..RangeRequest::prefix("a/").sorted(SortTarget::Create, SortOrder::Descend)
    };
    let read = client.range(newest).await.expect("it is read");
    let keys: Vec<_> = read.kvs.iter().map(|kv| (&*kv.key, &*kv.value)).collect();
    assert_eq!(keys, [(&b"a/1"[..], &b""[..]), (b"a/3", b"")]);
    // The key that was created before another one.
    let before = RangeRequest {
        max_create_revision: read.kvs[1].create_revision - 1,
        limit: 1,
        ..RangeRequest::prefix("a/").sorted(SortTarget::Create, SortOrder::Descend)
    };
    let read = client.range(before).await.expect("it is read");
    assert_eq!((read.kvs.len(), &*read.kvs[0].key), (1, &b"a/2"[..]));
    let first = RangeRequest {
        limit: 1,
        ..RangeRequest::prefix("").sorted(SortTarget::Key, SortOrder::Ascend)
    };
    assert_eq!(client.range(first).await.expect("it is read").kvs[0].key, b"a/1");
}

#[tokio::test]
async fn a_transaction_takes_the_branch_of_its_conditions() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    client.put(put("j", "")).await.expect("it is written");
    client.put(put("k", "v")).await.expect("it is written");
    client.put(put("k", "w")).await.expect("it is written");
    let kv = client
        .range(RangeRequest::key("k"))
        .await
        .expect("it is read")
        .kvs[0]
        .clone();
    let (created, changed) = (kv.create_revision, kv.mod_revision);
    let equal = |operand| Compare::new("k", Relation::Equal, operand);
    for (condition, expected) in [
        (equal(Operand::CreateRevision(created)), true),
        (equal(Operand::CreateRevision(changed)), false),
        (equal(Operand::ModRevision(changed)), true),
        (equal(Operand::ModRevision(created)), false),
        (equal(Operand::Value(b"w".to_vec())), true),
        (equal(Operand::Value(b"v".to_vec())), false),
        (
            Compare::new("x", Relation::Equal, Operand::CreateRevision(0)),
            true,
        ),
        (
            Compare::new("x", Relation::Equal, Operand::Value(Vec::new())),
            false,
        ),
        // A range without keys has the create revision 0, any other has not.
        (
            Compare::new("x", Relation::Equal, Operand::CreateRevision(created)).prefix(),
            false,
        ),
        (
            Compare::new("x", Relation::Equal, Operand::CreateRevision(0)).prefix(),
            true,
        ),
        (
            Compare::new("k", Relation::Equal, Operand::CreateRevision(0)).prefix(),
            false,
        ),
        (
            Compare::new("", Relation::Equal, Operand::CreateRevision(created)).prefix(),
            false,
        ),
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
    let delete = Op::DeleteRange(DeleteRangeRequest {
        key: "k".into(),
        ..DeleteRangeRequest::default()
    });
    let absent = Compare::new("k", Relation::Equal, Operand::CreateRevision(0));
    let read = Op::Range(RangeRequest::prefix("k"));
    let place = TxnRequest::new(vec![absent], vec![write, read.clone()], vec![delete, read]);
    let placed = client.txn(place.clone()).await.expect("a reply");
    assert!(placed.succeeded);
    let header = placed.header.expect("a header");
    let [first, second] = &placed.responses[..] else {
        panic!("{placed:?}")
    };
    assert!(matches!(&first.reply, Some(OpReply::Put(_))));
    let Some(OpReply::Range(found)) = &second.reply else {
        panic!("{placed:?}")
    };
    assert_eq!(found.kvs[0].create_revision, header.revision);
    assert_eq!(found.kvs[0].lease, lease);
    let removed = client.txn(place).await.expect("a reply");
    let [first, second] = &removed.responses[..] else {
        panic!("{removed:?}")
    };
    assert!(matches!(&first.reply, Some(OpReply::DeleteRange(deleted)) if deleted.deleted == 1));
    assert!(matches!(&second.reply, Some(OpReply::Range(found)) if found.kvs.is_empty()));
}

#[tokio::test]
async fn a_transaction_of_conditions_alone_is_refused() {
    let client = client("etcd://127.0.0.1:1");
    let alone = Compare::new("k", Relation::Equal, Operand::CreateRevision(0));
    let refused = client.txn(TxnRequest::new(vec![alone], vec![], vec![])).await;
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
        client.put(leased).await.expect("it is written");
    }
    let left = async || client.range(RangeRequest::prefix("")).await.expect("a reply").kvs;
    assert_eq!(left().await.len(), 2);
    client.revoke(LeaseId { id }).await.expect("it ends");
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
    let txn = TxnRequest::new(vec![], vec![Op::Put(leased.clone())], vec![]);
    for (refused, is_missing) in [
        (client.put(leased).await.map(drop), true),
        (client.txn(txn).await.map(drop), true),
        (client.revoke(LeaseId { id: 7 }).await.map(drop), true),
        (client.put(kept).await.map(drop), false),
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
    let state = client.status().await.expect("a state");
    assert!(state.version.starts_with("3."), "{state:?}");
    assert!(state.db_size > 0 && state.leader > 0 && !state.is_learner);
    let listed = client.members().await.expect("a list").members;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, state.leader);
    assert_eq!(client.alarms().await.expect("alarms").alarms, []);
    // The database reaches its quota.
    let large = put("k", &"v".repeat(100_000));
    client.put(large.clone()).await.map(drop).unwrap_or_default();
    let refused = client.put(large).await.expect_err("the quota");
    assert_error(&refused, (Fault::Store, Effect::Unknown), "etcdctl alarm disarm");
    let alarms = client.alarms().await.expect("alarms").alarms;
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].alarm(), tenure_etcd::client::AlarmType::NoSpace);
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let large = put("k", &"v".repeat(2_000_000));
    let refused = client.put(large).await.expect_err("its size");
    assert_error(&refused, (Fault::Limit, Effect::None), "larger than etcd allows");
}
