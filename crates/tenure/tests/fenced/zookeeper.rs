//! Writes to ZooKeeper that only the holder of a lock can make, and the evidence for transactions of one's own.

use std::net::SocketAddr;
use std::time::Duration;

use tenure::fenced::set_in_zookeeper;
use tenure::zookeeper::{Config, LockEvidence, StoreUrl};
use tenure::{Client, Error};
use tenure_servers::{Proxy, Way, ZooKeeper, needs};
use tenure_zookeeper::client::{Acl, Client as Session, Mode, Op, Outcome};

/// The server's unit of time.
const TICK: Duration = Duration::from_millis(500);

/// The shortest lease, in which six ticks pass.
const SHORT: Duration = Duration::from_secs(3);

/// The node that the tests write to.
const NODE: &str = "/stock";

fn server() -> Option<ZooKeeper> {
    needs("zookeeper", "zookeeper").then(|| ZooKeeper::start(TICK).expect("ZooKeeper starts"))
}

async fn connect(address: SocketAddr) -> Client {
    let url = format!("zookeeper://{address}/locks?tick_time=500ms");
    tenure::connect(&url).await.expect("it answers")
}

/// A session of another program, which creates the node.
async fn session(server: &ZooKeeper) -> Session {
    let config = Config::from_url(&StoreUrl::parse(&server.url()).expect("a URL"));
    let session = Session::connect(config.expect("settings"), Duration::from_secs(10)).await;
    let session = session.expect("it answers");
    let created = session.create(NODE, b"", Mode::Persistent, Acl::Open).await;
    created.expect("the node is new");
    session
}

async fn data(session: &Session) -> String {
    let (data, _) = session.get_data(NODE).await.expect("the node is there");
    String::from_utf8(data).expect("a text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_writes_until_its_claim_ends() {
    let Some(server) = server() else { return };
    let session = session(&server).await;
    let (paused, next) = (connect(server.address()).await, connect(server.address()).await);
    let old = paused.mutex("stock").fixed_lease(SHORT).lock().await;
    let old = old.expect("the lock is free");
    set_in_zookeeper(&old, NODE, "7")
        .await
        .expect("it holds the lock");
    let new = next.mutex("stock").lock().await.expect("the lease ends");
    set_in_zookeeper(&new, NODE, "6")
        .await
        .expect("it holds the lock");
    let late = set_in_zookeeper(&old, NODE, "5").await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    assert_eq!(data(&session).await, "6");
}

/// Nothing reaches ZooKeeper from a paused machine, so its session ends. The write that it sends on waking is its first request.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_after_the_end_of_the_session_has_no_effect() {
    let Some(server) = server() else { return };
    let session = session(&server).await;
    let proxy = Proxy::start(server.address()).await.expect("a port is free");
    let (paused, next) = (connect(proxy.address()).await, connect(server.address()).await);
    let old = paused.mutex("stock").lease(SHORT).lock().await;
    let old = old.expect("the lock is free");
    proxy.hold(Way::ToServer);
    proxy.hold(Way::ToClient);
    let new = next.mutex("stock").lock().await.expect("the session ends");
    set_in_zookeeper(&new, NODE, "6")
        .await
        .expect("it holds the lock");
    proxy.heal();
    set_in_zookeeper(&old, NODE, "5")
        .await
        .expect_err("another client holds the lock");
    assert_eq!(data(&session).await, "6");
}

/// The client does not know yet that its claim has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_the_claims_node_has_no_effect() {
    let Some(server) = server() else { return };
    let (session, client) = (session(&server).await, connect(server.address()).await);
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let evidence = guard.evidence().expect("ZooKeeper proves its grants");
    let LockEvidence { path, .. } = evidence.get().expect("of this type");
    session.delete(path, None).await.expect("the node is there");
    let late = set_in_zookeeper(&guard, NODE, "5").await;
    assert!(matches!(late, Err(Error::Lost(_))), "{late:?}");
    assert_eq!(data(&session).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_guards_a_transaction_of_another_program() {
    let Some(server) = server() else { return };
    let (session, client) = (session(&server).await, connect(server.address()).await);
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let evidence = guard.evidence().expect("ZooKeeper proves its grants");
    let LockEvidence { path, czxid, .. } = evidence.get().expect("of this type");
    let stat = session.exists(path).await.expect("a reply").expect("a node");
    assert_eq!(stat.czxid, *czxid);
    let guarded = [
        Op::Check(path.clone(), None),
        Op::SetData(NODE.to_owned(), b"7".to_vec(), None),
    ];
    let write = async || session.multi(&guarded).await.expect("a reply");
    assert!(matches!(write().await, Outcome::Done { .. }));
    guard.unlock().await.expect("it is released");
    assert!(matches!(write().await, Outcome::Refused { index: 0, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgraded_writer_still_writes() {
    let Some(server) = server() else { return };
    let (session, client) = (session(&server).await, connect(server.address()).await);
    let guard = client.rwlock("stock").write().await.expect("the lock is free");
    guard.downgrade().await.expect("it is a reader now");
    set_in_zookeeper(&guard, NODE, "7")
        .await
        .expect("it holds the lock");
    assert_eq!(data(&session).await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_node_is_an_error_and_no_loss() {
    let Some(server) = server() else { return };
    let client = connect(server.address()).await;
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let refused = set_in_zookeeper(&guard, "/missing", "7").await;
    let refused = refused.expect_err("nothing to write to");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_lock_in_another_store_is_refused() {
    let client = tenure::connect("memory:").await.expect("memory is there");
    let guard = client.mutex("stock").lock().await.expect("the lock is free");
    let refused = set_in_zookeeper(&guard, NODE, "7").await;
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}
