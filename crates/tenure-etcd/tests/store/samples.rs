//! Keys that earlier versions wrote to etcd: their locks are listed, exclude others and can be evicted.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::case::{Case, shared};
use tenure_backend::{Claim, ClaimId, ClaimRef, ClientId, LockKey, Mode};
use tenure_etcd::client::{Client, GRANT, LeaseGrantRequest, PUT, PutRequest, RANGE, RangeRequest};
use tenure_etcd::{Config, StoreUrl};
use tenure_testkit::suite::{Fixture, TestClient, shown};

fn raw(case: &Case) -> Arc<Client> {
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    Client::new(Config::from_url(&url).expect("settings")).expect("a client")
}

/// Writes the keys of a sample. Returns the leases that are in the keys.
async fn load(sample: &str, case: &Case) -> Vec<String> {
    let (raw, mut leases) = (raw(case), Vec::new());
    for line in sample.lines().filter(|line| !line.starts_with('#')) {
        let lease = raw.call(GRANT, LeaseGrantRequest { ttl: 60 }).await;
        let lease = lease.expect("a lease").id;
        let hex = format!("{lease:x}");
        let (key, value) = line.split_once(" =").expect("a key and its value");
        let put = PutRequest {
            key: format!("{}/{}", case.prefix, key.replace("LEASE", &hex)).into(),
            value: value.trim_start().into(),
            lease,
            ..PutRequest::default()
        };
        raw.call(PUT, put).await.expect("it is written");
        leases.push(hex);
    }
    leases
}

/// One line for each lock, with `LEASE` in place of the leases.
async fn listed(client: &TestClient, leases: &[String]) -> Vec<String> {
    let locks = client.list("", 100).await;
    let line = |lock| {
        leases
            .iter()
            .fold(shown(lock), |line, lease| line.replace(lease, "LEASE"))
    };
    locks.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_listed_and_exclude_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let files: Vec<_> = fs::read_dir(folder).expect("the samples are there").collect();
    assert!(!files.is_empty());
    for file in files {
        let sample = fs::read_to_string(file.expect("a file").path()).expect("text");
        let case = shared().await;
        let leases = load(&sample, &case).await;
        let fixture = Fixture::new(case.clone()).await;
        let client = fixture.client().await;
        let [ann, bob] = [0xA1, 0xB2].map(|byte| {
            let client = ClientId::from_random([byte; 16]);
            move |number| ClaimId::new(client, number)
        });
        let expected = [
            format!("leader: {} exclusive 10.0.0.5:8080 | ", ann(5)),
            format!(
                "mutex: {} exclusive ann@one:11 | {} exclusive bob@two:22, LEASE exclusive ",
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
        assert_eq!(listed(&client, &leases).await, expected);
        let folder = RangeRequest::prefix(format!("{}/seats/", case.prefix));
        let keys = raw(&case).call(RANGE, folder).await.expect("a reply").kvs;
        let created = keys.iter().map(|kv| kv.create_revision).min().expect("two keys");
        let seats = LockKey::new("seats").expect("a name");
        let token = client.status(&seats).await.expect("it is held").holders[0].token;
        let expected = u64::try_from(created * 1_024).expect("a revision");
        assert_eq!(token.expect("it has one").get(), expected);
        for (name, mode) in [
            ("gone", Mode::Exclusive),
            ("leader", Mode::Exclusive),
            ("mutex", Mode::Exclusive),
            ("table", Mode::Write),
        ] {
            client
                .finds_busy(&LockKey::new(name).expect("a name"), mode)
                .await;
        }
        let key = LockKey::new("mutex").expect("a name");
        let held = Claim::of(ClaimRef { key, id: ann(1) }, Duration::from_secs(60));
        client.evict(&held, "ada").await.freed_it(&held);
        let mutex = format!("mutex: {} exclusive bob@two:22 | LEASE exclusive ", bob(1));
        assert_eq!(listed(&client, &leases).await[1], mutex);
    }
}
