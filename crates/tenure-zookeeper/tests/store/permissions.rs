//! Nodes that the store's user must not read or change.

use std::time::Duration;

use crate::case::{Case, children, key, node_of, shared};
use tenure_backend::{Fault, Mode, RenewReply, RenewRequest};
use tenure_testkit::suite::Fixture;
use tenure_zookeeper::client::{Acl, Client, Mode as NodeMode};
use tenure_zookeeper::{Config, StoreUrl};

/// The session timeout of the other user.
const SESSION: Duration = Duration::from_secs(10);

/// Creates a node that only another user may read or change.
async fn forbidden(case: &Case, name: &str, mode: NodeMode) -> Client {
    let address = case.server.lock().address();
    let url = StoreUrl::parse(&format!("zookeeper://ada:s3cr3t@{address}"));
    let config = Config::from_url(&url.expect("a URL")).expect("settings");
    let ada = Client::connect(config, SESSION).await.expect("a session");
    let created = ada.create(&case.path(name), b"", mode, Acl::Creator).await;
    created.expect("a node");
    ada
}

/// Without a session node, its session could not be kept alive.
#[tokio::test]
async fn a_claim_is_not_granted_without_a_session_node() {
    let case = shared().await;
    let raw = case.raw().await;
    forbidden(&case, "%tenure", NodeMode::Persistent).await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let claim = client.claim(&key("k"), Mode::Exclusive);
    let refused = client.try_acquire(&claim).await.expect_err("no session node");
    assert_eq!(refused.fault(), Fault::Denied, "{refused}");
    client.withdraw(&claim).await;
    assert_eq!(children(&raw, &case.path("k")).await, [""; 0]);
}

/// Another user's node takes the place of the second claim's.
#[tokio::test]
async fn a_claim_that_must_not_be_read_fails_no_other_renewal() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let claims = ["a", "b", "c"].map(|name| client.claim(&key(name), Mode::Exclusive));
    let mut nodes = Vec::new();
    for claim in &claims {
        nodes.push(node_of(&client, claim).await.path);
    }
    raw.delete(&nodes[1], None).await.expect("it is deleted");
    let below = nodes[1]
        .strip_prefix(&case.path(""))
        .expect("below that of the case");
    let _ada = forbidden(&case, below, NodeMode::Ephemeral).await;
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim)).collect();
    let replies = client.renewal_replies(renewals).await;
    let is_alive = |at: usize| matches!(&replies[at], RenewReply::Alive { .. });
    let is_denied = matches!(&replies[1], RenewReply::Unknown(error) if error.fault() == Fault::Denied);
    assert!(is_alive(0) && is_denied && is_alive(2), "{replies:?}");
}

#[tokio::test]
async fn a_listing_leaves_out_what_its_user_must_not_read() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    client.holds(&key("k"), Mode::Exclusive).await;
    let _ada = forbidden(&case, "secret", NodeMode::Ephemeral).await;
    let listed = client.list("", 10).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
}
