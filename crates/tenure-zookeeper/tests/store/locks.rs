//! What the conformance suite cannot see: the nodes and sessions in ZooKeeper, and other programs that use them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::{Case, alone, children, key, node_of, only_child, shared};
use tenure_backend::{
    AcquireReply, Cause, Claim, Effect, Fault, HANDOVER_WINDOW, HolderId, Loss, Mode, Phase, ReleaseRequest,
    ReleaseTarget, RenewReply, RenewRequest,
};
use tenure_servers::Way;
use tenure_testkit::suite::Fixture;
use tenure_zookeeper::client::{Acl, Client, Event, Mode as NodeMode};
use tenure_zookeeper::{Config, StoreUrl, ZookeeperStore};

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(10);

/// A claim for two of three permits.
const PERMITS: Mode = Mode::Permits {
    take: NonZeroU32::new(2).unwrap(),
    of: NonZeroU32::new(3).unwrap(),
};

/// Creates a contender as Curator's mutex does.
async fn foreign(raw: &Client, case: &Case, name: &str) -> String {
    let folder = case.path(name);
    // Fails if it exists.
    let _ = raw.create(&folder, b"", NodeMode::Container, Acl::Open).await;
    let path = format!("{folder}/_c_4f7c5c5e-0000-4000-8000-000000000000-lock-");
    let created = raw.create(&path, b"127.0.0.1", NodeMode::EphemeralSequential, Acl::Open);
    created.await.expect("a node").path
}

fn eviction(target: ReleaseTarget) -> ReleaseRequest {
    ReleaseRequest {
        target,
        cause: Cause::Evicted { by: None },
        successor: None,
        cooldown: Duration::ZERO,
    }
}

#[tokio::test]
async fn the_node_of_a_claim_is_as_curator_names_it() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    for (name, mode, word) in [
        ("mutex", Mode::Exclusive, "-lock-0000000000"),
        ("reader", Mode::Read, "-__READ__0000000000"),
        ("writer", Mode::Write, "-__WRIT__0000000000"),
    ] {
        let claim = client.claim(&key(name), mode);
        let node = node_of(&client, &claim).await;
        let (folder, own) = node.path.rsplit_once('/').expect("a path");
        assert_eq!(folder, case.path(name));
        assert!(
            own.starts_with("_c_") && own.len() == 3 + 36 + word.len() && own.ends_with(word),
            "{own}"
        );
        let stat = raw.exists(&node.path).await.expect("a reply").expect("a node");
        assert_eq!(stat.czxid, node.czxid);
        assert_ne!(stat.ephemeral_owner, 0);
    }
    let held = client.claim(&key("writer/2"), Mode::Write);
    let write = node_of(&client, &held).await.path;
    client.downgrades(&held).await;
    let left = children(&raw, &case.path("writer/2")).await;
    let read = write
        .rsplit_once('/')
        .expect("a path")
        .1
        .replace("__WRIT__", "__READ__");
    assert_eq!(left, [read]);
}

#[tokio::test]
async fn a_foreign_holder_excludes_and_can_be_evicted() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let node = foreign(&raw, &case, "k").await;
    let claim = client.queues(&key("k"), Mode::Exclusive).await;
    let status = client.status(&key("k")).await.expect("it is held");
    let id: Arc<str> = node.rsplit_once('/').expect("a path").1.into();
    assert_eq!(status.holders[0].id, HolderId::Foreign(id.clone()));
    let reader = client.try_acquire(&client.claim(&key("k"), Mode::Read)).await;
    assert!(reader.is_err(), "a foreign contender is a mutex: {reader:?}");
    let target = ReleaseTarget::Foreign {
        key: key("k"),
        id: id.clone(),
    };
    let evicted = client.send_release(eviction(target));
    assert_eq!(evicted.await.freed, [HolderId::Foreign(id)]);
    client.granted(&claim).await;
}

#[tokio::test]
async fn kazoos_contenders_exclude_ours() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    raw.create(&case.path("k"), b"", NodeMode::Container, Acl::Open)
        .await
        .expect("a node");
    let path = case.path("k/4f7c5c5e000040008000000000000000__lock__");
    let created = raw
        .create(&path, b"", NodeMode::EphemeralSequential, Acl::Open)
        .await;
    client.finds_busy(&key("k"), Mode::Exclusive).await;
    client.finds_busy(&key("k"), Mode::Read).await;
    raw.delete(&created.expect("a node").path, None)
        .await
        .expect("it is deleted");
    client.finds_free(&key("k"), Mode::Exclusive).await;
}

#[tokio::test]
async fn nested_names_do_not_exclude_each_other() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    client.holds(&key("a"), Mode::Exclusive).await;
    foreign(&raw, &case, "a/b").await;
    client.finds_busy(&key("a/b"), Mode::Exclusive).await;
    let listed = client.list("a", 10).await;
    assert_eq!(listed.len(), 2, "{listed:?}");
}

#[tokio::test]
async fn a_lock_below_an_ephemeral_node_is_refused() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let created = raw
        .create(&case.path("k"), b"", NodeMode::Ephemeral, Acl::Open)
        .await;
    created.expect("a node");
    for (name, mode) in [
        ("k", Mode::Exclusive),
        ("k/a", Mode::Read),
        ("k/a/b", Mode::Exclusive),
    ] {
        let refusal = client.try_acquire(&client.fair(&key(name), mode)).await;
        let refusal = refusal.expect_err("an ephemeral node has no children");
        assert_eq!(
            (refusal.fault(), refusal.effect()),
            (Fault::UnknownKind, Effect::None),
            "{name}"
        );
    }
}

#[tokio::test]
async fn claims_share_a_session_and_end_by_themselves() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    // Long enough for a busy machine.
    let lease = Duration::from_secs(6);
    let [renewed, silent] =
        ["a", "b"].map(|name| client.claim_as(&key(name), Mode::Exclusive, |claim| claim.lease = lease));
    let mut owners = Vec::new();
    for claim in [&renewed, &silent] {
        let path = node_of(&client, claim).await.path;
        owners.push(
            raw.exists(&path)
                .await
                .expect("a reply")
                .expect("a node")
                .ephemeral_owner,
        );
    }
    assert_eq!(owners[0], owners[1]);
    for _ in 0..7 {
        fixture.pass(Duration::from_secs(1)).await;
        client.stays_alive(&renewed, Phase::Granted).await;
    }
    assert_eq!(
        children(&raw, &case.path("b")).await,
        [""; 0],
        "it was not renewed"
    );
    assert_eq!(client.is_gone(&silent, Phase::Granted).await, Loss::Expired);
}

#[tokio::test]
async fn a_store_opens_four_sessions_at_most() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let mut sessions = std::collections::BTreeSet::new();
    let raw = case.raw().await;
    // The first session, of 30 s, is replaced when no other length is left.
    for (lease, expected) in [(5, 5), (6, 6), (7, 7), (4, 5), (10, 30), (40, 40), (50, 40)] {
        let claim = client.claim_as(&key(&lease.to_string()), Mode::Exclusive, |claim| {
            claim.lease = Duration::from_secs(lease);
        });
        let grant = client.granted(&claim).await;
        assert_eq!(grant.lease, Duration::from_secs(expected), "{lease}");
        if lease == 10 {
            client.release(&claim).await.freed_it(&claim);
            continue;
        }
        let path = node_of(&client, &claim).await.path;
        sessions.insert(
            raw.exists(&path)
                .await
                .expect("a reply")
                .expect("a node")
                .ephemeral_owner,
        );
    }
    assert_eq!(sessions.len(), 4);
}

#[tokio::test]
async fn a_refused_try_creates_no_node() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, case.raw().await);
    clients[0].holds(&key("k"), Mode::Exclusive).await;
    let cversion = async || {
        let stat = raw.exists(&case.path("k")).await.expect("a reply");
        stat.expect("a node").cversion
    };
    let before = cversion().await;
    let tried = clients[1].claim(&key("k"), Mode::Exclusive);
    let reply = clients[1].acquire(&tried).await;
    assert!(matches!(reply, AcquireReply::Waiting { .. }), "{reply:?}");
    assert_eq!(cversion().await, before);
}

/// R18: a create whose reply is lost leaves no node behind, whether its claim is withdrawn or acquired again.
#[tokio::test]
async fn a_lost_reply_to_a_create_leaves_no_node() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let options = "tick_time=500ms&command_timeout=300ms";
    let through = Case {
        via: vec![proxy.address()],
        options,
        ..case.clone()
    };
    let fixture = Fixture::new(through).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    // Opens the session, and creates the node of the lock.
    client.finds_free(&key("k"), Mode::Exclusive).await;
    for round in 0..10 {
        let claim = client.fair(&key("k"), Mode::Exclusive);
        proxy.hold(Way::ToClient);
        let reply = client.acquire_by(&claim, client.now() + SOON).await;
        assert_eq!(reply.expect_err("no reply comes").effect(), Effect::Unknown);
        only_child(&raw, &case.path("k")).await;
        proxy.cut();
        proxy.heal();
        if round % 2 == 0 {
            client.granted(&claim).await;
            assert_eq!(children(&raw, &case.path("k")).await.len(), 1);
        }
        client.withdraw(&claim).await.freed_it(&claim);
        assert_eq!(children(&raw, &case.path("k")).await, [""; 0]);
    }
}

/// Other claims keep the session alive, so nothing else would remove the node.
#[tokio::test]
async fn an_unanswered_create_is_withdrawn_after_the_lease() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let fixture = Fixture::new(case.through(&proxy)).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let short = |name: &str| {
        let mut claim = Claim::clone(&client.fair(&key(name), Mode::Exclusive));
        claim.lease = Duration::from_secs(5);
        Arc::new(claim)
    };
    client.finds_free(&key("k"), Mode::Exclusive).await;
    let kept = short("kept");
    client.granted(&kept).await;
    proxy.hold(Way::ToClient);
    let reply = client.acquire_by(&short("k"), client.now() + SOON).await;
    assert_eq!(reply.expect_err("no reply comes").effect(), Effect::Unknown);
    proxy.cut();
    proxy.heal();
    only_child(&raw, &case.path("k")).await;
    let end = Instant::now() + SOON;
    while !children(&raw, &case.path("k")).await.is_empty() {
        assert!(Instant::now() < end, "the node of the claim stays");
        client.stays_alive(&kept, Phase::Granted).await;
        // sleep: the pace of renewals.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.stays_alive(&kept, Phase::Granted).await;
}

#[tokio::test]
async fn an_eviction_marks_10_ms_before_it_deletes() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, case.raw().await);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let claim = clients[0].claim(&key("k"), Mode::Exclusive);
        let node = node_of(&clients[0], &claim).await.path;
        let mut marked = raw.get_data_watched(&node).await.expect("data").2;
        let mut deleted = raw.get_children_watched(&node).await.expect("children").2;
        // The request names no cooldown, so the pause is the store's own.
        let eviction = clients[1].evict(&claim, "alice");
        let pause = async {
            assert_eq!(marked.fired().await, Event::DataChanged);
            let marked = Instant::now();
            assert_eq!(deleted.fired().await, Event::Deleted);
            marked.elapsed()
        };
        let (released, pause) = tokio::join!(eviction, pause);
        released.freed_it(&claim);
        pauses.push(pause);
    }
    pauses.sort();
    assert!(
        pauses[4] >= HANDOVER_WINDOW - Duration::from_millis(1),
        "{pauses:?}"
    );
}

/// While the first reader is there, another program changes the node of the second all the time.
#[tokio::test]
async fn a_reader_that_has_changed_is_evicted_with_the_others() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.three().await, case.raw().await);
    let key = key("k");
    let mut held = Vec::new();
    let mut nodes = Vec::new();
    for client in &clients[..2] {
        let claim = client.claim(&key, Mode::Read);
        nodes.push(node_of(client, &claim).await.path);
        held.push(claim);
    }
    let data = raw.get_data(&nodes[1]).await.expect("data").0;
    let changes = async {
        while raw.exists(&nodes[0]).await.expect("a reply").is_some() {
            raw.set_data(&nodes[1], &data, None).await.expect("it is written");
        }
    };
    let all = ReleaseTarget::All(key.clone());
    let (released, ()) = tokio::join!(clients[2].send_release(eviction(all)), changes);
    assert_eq!(released.freed.len(), 2, "{released:?}");
    clients[2].finds_free(&key, Mode::Write).await;
}

#[tokio::test]
async fn a_polite_request_to_revoke_is_no_loss() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, case.raw().await);
    for evicts in [false, true] {
        let claim = clients[0].claim(&key("k"), Mode::Exclusive);
        let node = node_of(&clients[0], &claim).await.path;
        raw.set_data(&node, b"__REVOKE__", None)
            .await
            .expect("it is written");
        clients[0].stays_alive(&claim, Phase::Granted).await;
        raw.set_data(&node, b"__REVOKE__", None)
            .await
            .expect("it is written");
        match evicts {
            true => {
                clients[1].evict(&claim, "alice").await.freed_it(&claim);
                let by = Some("alice".into());
                assert_eq!(
                    clients[0].is_gone(&claim, Phase::Granted).await,
                    Loss::Evicted { by }
                );
            }
            false => clients[0].release(&claim).await.freed_it(&claim),
        }
        clients[1].finds_free(&key("k"), Mode::Exclusive).await;
    }
}

#[tokio::test]
async fn a_polite_request_to_revoke_does_not_stop_a_downgrade() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let held = client.claim(&key("k"), Mode::Write);
    let write = node_of(&client, &held).await.path;
    raw.set_data(&write, b"__REVOKE__", None)
        .await
        .expect("it is written");
    client.downgrades(&held).await;
    let left = children(&raw, &case.path("k")).await;
    assert!(left[0].contains("__READ__"), "{left:?}");
}

#[tokio::test]
async fn two_downgrades_replace_the_node_once() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, case.raw().await);
    let held = client.holds(&key("k"), Mode::Write).await;
    tokio::join!(client.downgrades(&held), client.downgrades(&held));
    let stat = raw.exists(&case.path("k")).await.expect("a reply");
    // The first node was created, and then replaced.
    assert_eq!(stat.expect("a node").cversion, 3);
}

/// Each claim has two nodes, of which one is deleted.
#[tokio::test]
async fn a_claim_is_lost_with_any_of_its_nodes() {
    for (options, mode, deleted) in [
        ("tick_time=500ms&layout=ephemeral", Mode::Exclusive, None),
        ("tick_time=500ms", PERMITS, Some(0)),
        ("tick_time=500ms", PERMITS, Some(1)),
    ] {
        let case = Case {
            options,
            ..shared().await
        };
        let fixture = Fixture::new(case.clone()).await;
        let (client, raw) = (fixture.client().await, case.raw().await);
        let [renewed, released, kept] = ["renewed", "released", "kept"].map(key);
        let renewed = client.holds(&renewed, mode).await;
        let released = client.holds(&released, mode).await;
        let kept = client.holds(&kept, mode).await;
        for claim in [&renewed, &released] {
            let mut node = case.path(claim.at.key.as_str());
            if let Some(permit) = deleted {
                node += "/leases";
                node = format!("{node}/{}", children(&raw, &node).await[permit]);
            }
            raw.delete(&node, None).await.expect("it is deleted");
        }
        let renewals = [&renewed, &kept].map(|claim| RenewRequest::of(claim)).to_vec();
        let replies = tokio::time::timeout(SOON, client.send_renewals(renewals)).await;
        let replies = replies.expect("the renewal ends");
        assert!(
            matches!(
                &*replies,
                [RenewReply::Gone(Loss::Missing), RenewReply::Alive { .. }]
            ),
            "{replies:?}"
        );
        client.release(&released).await.freed_nothing();
        client.release(&kept).await.freed_it(&kept);
        assert_eq!(client.list("", 10).await, []);
    }
}

#[tokio::test]
async fn a_holder_removes_its_node_if_its_evictor_died() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, case.raw().await);
    let claim = clients[0].claim(&key("k"), Mode::Exclusive);
    let node = node_of(&clients[0], &claim).await.path;
    let mark = format!("tenure1-evicted mutex {} 1 alice", claim.at.id);
    raw.set_data(&node, mark.as_bytes(), None)
        .await
        .expect("it is written");
    assert_eq!(clients[1].status(&key("k")).await, None, "it counts as gone");
    let by = Some("alice".into());
    assert_eq!(
        clients[0].is_gone(&claim, Phase::Granted).await,
        Loss::Evicted { by }
    );
    clients[1]
        .granted_soon(&clients[1].claim(&key("k"), Mode::Exclusive))
        .await;
}

#[tokio::test]
async fn an_eviction_works_without_a_session_node() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, case.raw().await);
    let sessions = case.path("%tenure");
    for _ in 0..3 {
        let claim = clients[0].holds(&key("k"), Mode::Exclusive).await;
        for node in children(&raw, &sessions).await {
            // Fails if its client has created it again meanwhile.
            let _ = raw.delete(&format!("{sessions}/{node}"), None).await;
        }
        clients[1].evict(&claim, "alice").await.freed_it(&claim);
        clients[0].is_gone(&claim, Phase::Granted).await;
        clients[1].finds_free(&key("k"), Mode::Exclusive).await;
    }
}

#[tokio::test]
async fn a_session_that_is_opened_holds_up_no_other_acquire() {
    let case = shared().await;
    let [first, second] = [case.proxy().await, case.proxy().await];
    let through = Case {
        via: vec![first.address(), second.address()],
        options: "tick_time=500ms&connect_timeout=6s",
        ..case.clone()
    };
    let client = Fixture::new(through).await.client().await;
    let claim = |name: &str, seconds: u64| {
        client.claim_as(&key(name), Mode::Exclusive, |claim| {
            claim.lease = Duration::from_secs(seconds);
        })
    };
    // The open session moves to the second host. A further one begins at the first, which does not answer.
    first.refuse();
    client.granted(&claim("a", 30)).await;
    first.heal();
    first.hold(Way::ToClient);
    let (slow, quick) = (claim("b", 20), claim("c", 30));
    let quickly = async {
        let started = Instant::now();
        client.granted(&quick).await;
        started.elapsed()
    };
    let (_, took) = tokio::join!(client.granted(&slow), quickly);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn the_examination_compares_the_servers_tick() {
    let case = shared().await;
    let address = case.server.lock().address();
    let examine = async |hosts: String, tick: &str| {
        let url = format!("zookeeper://{hosts}/{}?tick_time={tick}", case.node);
        let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings");
        let store = ZookeeperStore::open(config).await.expect("a server answers");
        format!("{:?}", store.examine().await.expect("a reply"))
    };
    let right = examine(address.to_string(), "500ms").await;
    assert!(!right.contains("tickTime"), "{right}");
    let longer = examine(address.to_string(), "400ms").await;
    assert!(
        longer.contains("Warning") && longer.contains("`tickTime` of 500ms"),
        "{longer}"
    );
    // No server listens on port 1.
    let unsafe_and_down = examine(format!("{address},127.0.0.1:1"), "200ms").await;
    for expected in [
        "Danger",
        "more than twice the 200ms",
        "127.0.0.1:1 cannot be reached",
    ] {
        assert!(unsafe_and_down.contains(expected), "{unsafe_and_down}");
    }
}

#[tokio::test]
async fn a_closed_store_leaves_its_session_to_expire() {
    let case = alone().await;
    let fixture = Fixture::new(case.clone()).await;
    let [closed, other] = fixture.two().await;
    let claim = closed.short_lease(&key("k"), Mode::Exclusive);
    closed.granted(&claim).await;
    closed.backend().clone().close().await.expect("it closes");
    other.finds_busy(&key("k"), Mode::Exclusive).await;
    other
        .granted_within(&other.claim(&key("k"), Mode::Exclusive), SOON)
        .await;
}
