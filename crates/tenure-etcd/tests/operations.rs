//! What locks notice when a server's database is full, and when its login tokens are revoked.

mod case;

use std::sync::Arc;
use std::time::Duration;

use case::Case;
use futures_util::StreamExt;
use tenure_backend::{Effect, Fault, LockKey, Mode, Phase};
use tenure_etcd::client::{Client, PutRequest};
use tenure_etcd::{Config, StoreUrl};
use tenure_servers::{Etcd, needs};
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
async fn assert_handed_over(client: &TestClient, held: &Arc<tenure_backend::Claim>) {
    let next = client.queues(&held.at.key, held.mode).await;
    let mut wakes = client.watch(&next).await.expect("etcd wakes waiters");
    client.release(held).await.freed_it(held);
    tokio::time::timeout(SOON, wakes.next())
        .await
        .expect("it is woken");
    client.granted_soon(&next).await;
    client.release(&next).await.freed_it(&next);
}

/// A full database takes no new claims, but no holder loses its lock, and locks that are released are free.
#[tokio::test(flavor = "multi_thread")]
async fn held_locks_outlive_a_full_database() {
    const QUOTA: &str = "4194304";
    let Some(etcd) = start(&["--quota-backend-bytes", QUOTA]) else {
        return;
    };
    let case = Case::alone_on(etcd);
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let held = client.holds(&key("held"), Mode::Exclusive).await;
    let next = client.queues(&key("held"), Mode::Exclusive).await;
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    let raw = Client::new(Config::from_url(&url).expect("settings")).expect("a client");
    let fill = || {
        raw.put(PutRequest {
            key: "filler".into(),
            value: vec![b'x'; 500_000],
            ..PutRequest::default()
        })
    };
    while fill().await.is_ok() {}
    assert!(ask(&case, &["alarm", "list"]).contains("NOSPACE"));
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
    let status = ask(&case, &["endpoint", "status", "--write-out=json"]);
    let revision = status.split("\"revision\":").nth(1).expect("a revision");
    let revision: String = revision.chars().take_while(char::is_ascii_digit).collect();
    ask(&case, &["compaction", &revision]);
    ask(&case, &["defrag"]);
    ask(&case, &["alarm", "disarm"]);
    client.stays_alive(&next, Phase::Granted).await;
    assert_handed_over(&client, &next).await;
    client.finds_free(&key("new 2"), Mode::Exclusive).await;
}

/// The role needs the locks' prefix, and the folder of the bells and notes.
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
