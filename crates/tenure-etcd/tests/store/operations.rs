//! What locks notice when a server's database is full, and when its login tokens are revoked.

use std::sync::Arc;
use std::time::Duration;

use crate::case::Case;
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, LockKey, Mode, Phase,
    ReleaseReply, ReleaseRequest,
};
use tenure_etcd::client::{Client, PUT, PutRequest};
use tenure_etcd::{Config, EtcdStore, StoreUrl};
use tenure_servers::{Etcd, Proxy, Way, needs};
use tenure_testkit::suite::{Fixture, TestClient};

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(10);

fn start(options: &[&str]) -> Option<Etcd> {
    needs("etcd", "etcd-server").then(|| Etcd::start_with(options).expect("it starts"))
}

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

/// Runs a command of `etcdctl`.
fn ask(case: &Case, words: &[&str]) -> String {
    let asked = case.server.lock().ask(words);
    asked.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Releases the claim on a lock, and waits until the next one in the queue is woken and granted.
async fn assert_handed_over(client: &TestClient, held: &Arc<Claim>) {
    let next = client.queues(&held.at.key, held.mode).await;
    let mut wakes = client.watch(&next).await.expect("etcd wakes waiters");
    client.release(held).await.freed_it(held);
    tokio::time::timeout(SOON, wakes.next())
        .await
        .expect("it is woken");
    client.granted_soon(&next).await;
    client.release(&next).await.freed_it(&next);
}

/// Options for a server with a small database.
const SMALL: [&str; 2] = ["--quota-backend-bytes", "4194304"];

/// Writes until the database has reached its quota.
async fn fill(case: &Case) {
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    let raw = Client::new(Config::from_url(&url).expect("settings")).expect("a client");
    let write = || {
        raw.call(
            PUT,
            PutRequest {
                key: "filler".into(),
                value: vec![b'x'; 500_000],
                ..PutRequest::default()
            },
        )
    };
    while write().await.is_ok() {}
    assert!(ask(case, &["alarm", "list"]).contains("NOSPACE"));
}

/// What an operator does when the database has reached its quota.
fn make_room(case: &Case) {
    let status = ask(case, &["endpoint", "status", "--write-out=json"]);
    let revision = status.split("\"revision\":").nth(1).expect("a revision");
    let revision: String = revision.chars().take_while(char::is_ascii_digit).collect();
    ask(case, &["compaction", &revision]);
    ask(case, &["defrag"]);
    ask(case, &["alarm", "disarm"]);
}

/// A full database takes no new claims, but no holder loses its lock, and locks that are released are free.
#[tokio::test(flavor = "multi_thread")]
async fn held_locks_outlive_a_full_database() {
    let Some(etcd) = start(&SMALL) else {
        return;
    };
    let case = Case::alone_on(etcd);
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let held = client.holds(&key("held"), Mode::Exclusive).await;
    let next = client.queues(&key("held"), Mode::Exclusive).await;
    fill(&case).await;
    let refused = client
        .try_acquire(&client.claim(&key("new"), Mode::Exclusive))
        .await;
    let refused = refused.expect_err("it would write a key");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Store, Effect::Unknown)
    );
    assert!(refused.to_string().contains("etcdctl alarm disarm"), "{refused}");
    let found = client.backend().clone().examine().await.expect("a reply");
    assert!(
        found
            .iter()
            .any(|finding| format!("{finding:?}").contains("has reached its quota")),
        "{found:?}"
    );
    client.stays_alive(&held, Phase::Granted).await;
    client.stays_alive(&next, Phase::Waiting).await;
    client.release(&held).await.freed_it(&held);
    client.granted_soon(&next).await;
    make_room(&case);
    client.stays_alive(&next, Phase::Granted).await;
    assert_handed_over(&client, &next).await;
    client.finds_free(&key("new 2"), Mode::Exclusive).await;
}

/// A request of the claim was not answered and may still arrive, so its release must write, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_frees_a_lock_whose_reply_was_lost() {
    let Some(etcd) = start(&SMALL) else {
        return;
    };
    let case = Case::alone_on(etcd);
    let address = case.server.lock().address();
    let proxy = Proxy::start(address).await.expect("a port is free");
    let url = format!("etcd://{}/{}?command_timeout=1s", proxy.address(), case.prefix);
    let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings");
    let store = EtcdStore::open(config).await.expect("it connects");
    let claim = |name: &str, number| {
        let id = ClaimId::new(ClientId::from_random([7; 16]), number);
        Arc::new(Claim::of(ClaimRef { key: key(name), id }, SOON * 3))
    };
    let acquire = async |claim: &Arc<Claim>| {
        let not_after = store.clock().now() + SOON;
        store.clone().acquire(claim.clone(), not_after).await
    };
    // The first claim creates the lease.
    let first = acquire(&claim("first", 1)).await;
    assert!(matches!(first, Ok(AcquireReply::Granted(_))), "{first:?}");
    let held = claim("held", 2);
    proxy.swallow(Way::ToClient);
    let lost = acquire(&held).await;
    assert!(lost.is_err(), "{lost:?}");
    proxy.heal();
    let found = acquire(&held).await;
    assert!(matches!(found, Ok(AcquireReply::Granted(_))), "{found:?}");
    fill(&case).await;
    let release = async || {
        let request = ReleaseRequest::of(&held, Cause::Unlocked);
        let released = store.clone().release([request].into_iter().collect());
        released.await.pop().expect("a reply")
    };
    let refused = release().await;
    let ReleaseReply::Unknown(error) = &refused else {
        panic!("the late request may still write, but the answer is {refused:?}")
    };
    assert!(error.to_string().contains("etcdctl alarm disarm"), "{error}");
    let fixture = Fixture::new(case.clone()).await;
    let other = fixture.client().await;
    assert_eq!(other.status(&key("held")).await, None);
    make_room(&case);
    let released = release().await;
    assert!(matches!(released, ReleaseReply::Done { .. }), "{released:?}");
}

/// The role needs the locks' prefix, and the folder of leases and notes.
#[tokio::test(flavor = "multi_thread")]
async fn held_locks_outlive_the_revocation_of_their_token() {
    let Some(etcd) = start(&["--auth-token-ttl", "2"]) else {
        return;
    };
    let mut case = Case::alone_on(etcd);
    let prefix = format!("{}/", case.prefix);
    let grant = ["role", "grant-permission", "locks", "readwrite", "--prefix=true"];
    for words in [
        &["user", "add", "root:of-root"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &[&grant[..], &[&prefix]].concat(),
        &[&grant[..], &["\u{1}tenure/"]].concat(),
        &["user", "add", "ada:s3cr3t"],
        &["user", "grant-role", "ada", "locks"],
        &["auth", "enable"],
    ] {
        ask(&case, words);
    }
    case.login = "ada:s3cr3t@";
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let held = client.holds(&key("held"), Mode::Exclusive).await;
    let other = client.holds(&key("other"), Mode::Exclusive).await;
    for _ in 0..2 {
        // sleep: the token's time must run out, and the server looks every second.
        tokio::time::sleep(Duration::from_secs(4)).await;
        client.stays_alive(&held, Phase::Granted).await;
        client.finds_free(&key("new"), Mode::Exclusive).await;
    }
    let evicted = client.evict(&other, "ada").await;
    evicted.freed_it(&other);
    assert_handed_over(&client, &held).await;
}
