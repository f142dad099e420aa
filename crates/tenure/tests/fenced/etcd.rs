//! Writes to etcd that only the holder of a lock can make, and the evidence for transactions of one's own.

use std::time::Duration;

use tenure::Error;
use tenure::etcd::LockEvidence;
use tenure::fenced::put_in_etcd;
use tenure_servers::{Etcd, needs};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_writes_until_its_claim_ends() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let server = Etcd::start().expect("etcd starts");
    let connect = async || {
        tenure::connect(&format!("{}/locks", server.url()))
            .await
            .expect("it answers")
    };
    let (paused, next) = (connect().await, connect().await);
    let lease = Duration::from_secs(2);
    let old = paused.mutex("stock").fixed_lease(lease).lock().await;
    let old = old.expect("the lock is free");
    put_in_etcd(&old, "stock/42", "7")
        .await
        .expect("it holds the lock");
    let new = next.mutex("stock").lock().await.expect("the lease ends");
    put_in_etcd(&new, "stock/42", "6")
        .await
        .expect("it holds the lock");
    let late = put_in_etcd(&old, "stock/42", "5").await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    assert_eq!(
        server.ask(&["get", "stock/42"]).ok().as_deref(),
        Some("stock/42\n6")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_guards_a_transaction_of_etcdctl() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let server = Etcd::start().expect("etcd starts");
    let client = tenure::connect(&format!("{}/locks", server.url()))
        .await
        .expect("it answers");
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let evidence = guard.evidence().expect("etcd proves its grants");
    let LockEvidence {
        key, create_revision, ..
    } = evidence.get().expect("of this type");
    let key = String::from_utf8(key.clone()).expect("a readable key");
    let guarded = format!("create({key:?}) = \"{create_revision}\"\n\nput stock/42 7\n\n\n");
    let write = || server.ask_with(&["txn"], &guarded).expect("etcdctl runs");
    assert!(write().starts_with("SUCCESS"));
    guard.unlock().await.expect("it is released");
    assert!(write().starts_with("FAILURE"));
}

/// Without a prefix, `stock/42` is a contender of the lock `stock`, as Go's client writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_would_wait_for_the_lock_is_refused() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let server = Etcd::start().expect("etcd starts");
    let client = tenure::connect(&server.url()).await.expect("it answers");
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let refused = put_in_etcd(&guard, "stock/42", "7").await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    put_in_etcd(&guard, "stock/42/left", "7")
        .await
        .expect("it holds the lock");
}

#[tokio::test]
async fn a_lock_in_another_store_is_refused() {
    let client = tenure::connect("memory:").await.expect("memory is there");
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let refused = put_in_etcd(&guard, "stock/42", "7").await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}
