//! Nodes that earlier versions wrote to ZooKeeper: their locks are listed, exclude others and can be evicted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::case::{Case, shared};
use tenure_backend::{Claim, ClaimId, ClaimRef, ClientId, LockKey, Mode};
use tenure_testkit::suite::{Fixture, TestClient, shown};
use tenure_zookeeper::client::{Acl, Client, Mode as NodeMode};
use tenure_zookeeper::{Config, StoreUrl};

/// Creates the nodes of a sample, and the containers above them. They live as long as the client.
async fn load(sample: &str, case: &Case) -> Client {
    let url = format!("zookeeper://{}", case.server.lock().address());
    let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings");
    let raw = Client::connect(config, Duration::from_secs(60)).await;
    let raw = raw.expect("a session");
    for line in sample.lines().filter(|line| !line.starts_with('#')) {
        let (node, data) = line.split_once(" =").expect("a node and its data");
        let path = case.path(node);
        for (at, _) in path.match_indices('/').skip(1) {
            // Fails if it exists.
            let _ = raw.create(&path[..at], b"", NodeMode::Container, Acl::Open).await;
        }
        let data = data.trim_start().as_bytes();
        raw.create(&path, data, NodeMode::Ephemeral, Acl::Open)
            .await
            .expect("a node");
    }
    raw
}

/// A case with the nodes of the sample of a layout, which are returned with one line for each of its locks.
async fn listed(layout: &str, options: &'static str) -> (Client, TestClient, Vec<String>) {
    let file = format!("tests/samples/{layout}-1.txt");
    let sample = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("text");
    let case = Case {
        options,
        ..shared().await
    };
    let raw = load(&sample, &case).await;
    let client = Fixture::new(case).await.client().await;
    let locks = client.list("", 100).await;
    (raw, client, locks.iter().map(shown).collect())
}

fn ann(number: u64) -> ClaimId {
    ClaimId::new(ClientId::from_random([0xA1; 16]), number)
}

fn bob(number: u64) -> ClaimId {
    ClaimId::new(ClientId::from_random([0xB2; 16]), number)
}

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

/// Evicts the first claim on `mutex`, and returns the line of that lock then.
async fn without_the_holder(client: &TestClient) -> Option<String> {
    let at = ClaimRef {
        key: key("mutex"),
        id: ann(1),
    };
    let held = Claim::of(at, Duration::from_secs(60));
    client.evict(&held, "ada").await.freed_it(&held);
    client.status(&key("mutex")).await.as_ref().map(shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_curator_is_listed_and_excludes_others() {
    let (_raw, client, lines) = listed("curator", "tick_time=500ms").await;
    let foreign = "_c_4f7c5c5e-0000-4000-8000-000000000000-lock-0000000002";
    let expected = [
        format!(
            "mutex: {} exclusive ann@one:11 | {} exclusive bob@two:22, {foreign} exclusive ",
            ann(1),
            bob(1)
        ),
        format!(
            "seats: {} 2 of 3 permits ann@one:11 | {} 2 of 3 permits bob@two:22",
            ann(4),
            bob(4)
        ),
        format!(
            "table: {} read ann@one:11, {} read bob@two:22 | {} write ann@one:11",
            ann(2),
            bob(2),
            ann(3)
        ),
    ];
    assert_eq!(lines, expected);
    let table = client.status(&key("table")).await.expect("it is held");
    let token = |id| {
        let mut holders = table.holders.iter();
        let holder = holders.find(|holder| holder.id == tenure_backend::HolderId::Claim(id));
        holder.and_then(|holder| holder.token).expect("it has one").get()
    };
    assert_eq!(token(ann(2)), 4_711 * 1_024);
    assert_ne!(token(bob(2)), token(ann(2)));
    for (name, mode) in [
        ("gone", Mode::Exclusive),
        ("mutex", Mode::Exclusive),
        ("table", Mode::Write),
    ] {
        client.finds_busy(&key(name), mode).await;
    }
    let mutex = format!("mutex: {} exclusive bob@two:22 | {foreign} exclusive ", bob(1));
    assert_eq!(without_the_holder(&client).await, Some(mutex));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_kazoo_is_listed_and_excludes_others() {
    let (_raw, client, lines) = listed("kazoo", "tick_time=500ms&layout=kazoo").await;
    let foreign = "4f7c5c5e000040008000000000000000__lock__0000000002";
    let waits = format!("{} exclusive bob@two:22", bob(1));
    let expected = [
        format!(
            "mutex: {} exclusive ann@one:11 | {waits}, {foreign} exclusive ",
            ann(1)
        ),
        format!("table: {} read ann@one:11 | {} write ann@one:11", ann(2), ann(3)),
    ];
    assert_eq!(lines, expected);
    client.finds_busy(&key("mutex"), Mode::Exclusive).await;
    client.finds_busy(&key("table"), Mode::Write).await;
    let mutex = format!("mutex: {waits} | {foreign} exclusive ");
    assert_eq!(without_the_holder(&client).await, Some(mutex));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_ephemeral_nodes_is_listed_and_excludes_others() {
    let (_raw, client, lines) = listed("ephemeral", "tick_time=500ms&layout=ephemeral").await;
    let expected = [
        format!("mutex: {} exclusive ann@one:11 | ", ann(1)),
        "other: other exclusive  | ".to_owned(),
    ];
    assert_eq!(lines, expected);
    for name in ["mutex", "other"] {
        client.finds_busy(&key(name), Mode::Exclusive).await;
    }
    assert_eq!(without_the_holder(&client).await, None);
    client.finds_free(&key("mutex"), Mode::Exclusive).await;
}
