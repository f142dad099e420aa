//! What the conformance suite cannot see: the keys and leases in etcd, and other programs that use them.

use std::sync::Arc;
use std::time::Duration;

use crate::case::{Case, alone, shared};
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness, HolderId, Invalidation, LockKey, Loss,
    Mode, Phase, ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest,
};
use tenure_etcd::client::{
    Client, DELETE_RANGE, DeleteRangeRequest, GRANT, LeaseGrantRequest, LeaseId, PUT, PutRequest, RANGE,
    REVOKE, RangeRequest,
};
use tenure_etcd::{Config, EtcdStore, LockEvidence, StoreUrl};
use tenure_servers::{EtcdCluster, Proxy, Way};
use tenure_testkit::suite::{Fixture, TestClient};

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(10);

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

fn raw(case: &Case) -> Arc<Client> {
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    Client::new(Config::from_url(&url).expect("settings")).expect("a client")
}

/// The key and the lease of a granted claim.
async fn key_of(raw: &Client, client: &TestClient, claim: &Arc<Claim>) -> (LockEvidence, i64) {
    let grant = client.granted(claim).await;
    let evidence = grant.evidence.expect("etcd proves its grants");
    let evidence = evidence.get::<LockEvidence>().expect("of this type").clone();
    let found = raw
        .call(RANGE, RangeRequest::key(&*evidence.key))
        .await
        .expect("a reply");
    assert_eq!(found.kvs[0].create_revision, evidence.create_revision);
    (evidence, found.kvs[0].lease)
}

/// A contender as Go's client writes it.
async fn foreign(raw: &Client, case: &Case, name: &str) -> String {
    let lease = raw
        .call(GRANT, LeaseGrantRequest { ttl: 60 })
        .await
        .expect("a lease")
        .id;
    let put = PutRequest {
        key: format!("{}/{name}/{lease:x}", case.prefix).into(),
        lease,
        ..PutRequest::default()
    };
    raw.call(PUT, put).await.expect("it is written");
    format!("{lease:x}")
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_and_tenure_exclude_each_other() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let held = client.holds(&key("k"), Mode::Exclusive).await;
    let (server, name) = (case.server.clone(), format!("{}/k", case.prefix));
    let other = tokio::task::spawn_blocking(move || {
        server.lock().ask(&["lock", &name, "--", "sh", "-c", "echo held"])
    });
    let queue = async {
        loop {
            let status = client.status(&key("k")).await.expect("it is held");
            if status.waiters.is_some_and(|waiters| waiters.len() == 1) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, queue).await.expect("etcdctl queues");
    assert!(!other.is_finished());
    client.release(&held).await.freed_it(&held);
    assert_eq!(other.await.expect("no panic").expect("etcdctl runs"), "held");
    client.finds_free(&key("k"), Mode::Exclusive).await;
}

/// With `fencing=etcdctl` a resource can compare our tokens with `ETCD_LOCK_REV`. A waiter's key is older than the revision of
/// the holder before it.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_etcdctls_revisions_rise_together() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let observer = fixture.client().await;
    let url = StoreUrl::parse(&format!("{}?fencing=etcdctl", case.url())).expect("a URL");
    let backend = EtcdStore::open(Config::from_url(&url).expect("settings")).await;
    let backend = backend.expect("it connects");
    assert_eq!(backend.profile().limits.max_grants.get(), 1);
    let acquire = async |number| {
        let id = ClaimId::new(ClientId::from_random([7; 16]), number);
        let claim = Arc::new(Claim {
            fairness: Fairness::Fifo,
            ..Claim::of(ClaimRef { key: key("k"), id }, SOON * 3)
        });
        loop {
            let not_after = backend.clock().now() + SOON;
            match backend.clone().acquire(claim.clone(), not_after).await {
                Ok(AcquireReply::Granted(grant)) => {
                    let tokens = grant.tokens.expect("a token");
                    return (claim, tokens.first().get());
                }
                waits => assert!(matches!(waits, Ok(AcquireReply::Waiting { .. })), "{waits:?}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let queue = async |length| {
        while observer
            .status(&key("k"))
            .await
            .and_then(|status| status.waiters)
            .map_or(0, |all| all.len())
            < length
        {
            tokio::task::yield_now().await;
        }
    };
    let (first, before) = acquire(1).await;
    let (server, name) = (case.server.clone(), format!("{}/k", case.prefix));
    let etcdctl = tokio::task::spawn_blocking(move || {
        let server = server.lock();
        server.ask(&["lock", &name, "--", "sh", "-c", "echo $ETCD_LOCK_REV"])
    });
    queue(1).await;
    let release = async {
        queue(2).await;
        let request = ReleaseRequest::of(&first, Cause::Unlocked);
        let released = backend.clone().release([request].into_iter().collect());
        released.await;
    };
    let ((_, after), ()) = tokio::join!(acquire(2), release);
    let theirs: u64 = etcdctl
        .await
        .expect("no panic")
        .expect("etcdctl runs")
        .parse()
        .expect("a number");
    assert!(before < theirs && theirs < after, "{before}, {theirs}, {after}");
    let shown = observer.status(&key("k")).await.expect("it is held");
    assert_eq!(shown.holders.len(), 1);
}

#[tokio::test]
async fn a_foreign_holder_excludes_and_can_be_evicted() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    let id = foreign(&raw, &case, "k").await;
    let claim = client.queues(&key("k"), Mode::Exclusive).await;
    let status = client.status(&key("k")).await.expect("it is held");
    let holder = HolderId::Foreign(id.as_str().into());
    assert_eq!(status.holders[0].id, holder);
    let reader = client.try_acquire(&client.claim(&key("k"), Mode::Read)).await;
    assert!(reader.is_err(), "a foreign contender is a mutex: {reader:?}");
    let evicted = client.send_release(ReleaseRequest {
        target: ReleaseTarget::Foreign {
            key: key("k"),
            id: id.into(),
        },
        cause: Cause::Evicted { by: None },
        successor: None,
        cooldown: Duration::ZERO,
    });
    assert_eq!(evicted.await.freed, [holder]);
    client.granted(&claim).await;
}

#[tokio::test]
async fn nested_names_do_not_exclude_each_other() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    foreign(&raw, &case, "a/b").await;
    let tried = client.holds(&key("a"), Mode::Exclusive).await;
    client.release(&tried).await.freed_it(&tried);
    let fair = client.fair(&key("a"), Mode::Exclusive);
    client.granted(&fair).await;
    client.finds_busy(&key("a"), Mode::Exclusive).await;
    assert_eq!(client.list("a", 10).await.len(), 2);
}

#[tokio::test]
async fn claims_share_a_lease_and_end_by_themselves() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    let [renewed, silent] = ["a", "b"].map(|name| client.short_lease(&key(name), Mode::Exclusive));
    let (_, lease) = key_of(&raw, &client, &renewed).await;
    let (evidence, other) = key_of(&raw, &client, &silent).await;
    assert_eq!(lease, other);
    let again = client.claim_as(&key("a"), Mode::Read, |claim| claim.lease = silent.lease);
    assert!(client.try_acquire(&again).await.is_err(), "the lock is a mutex");
    for _ in 0..3 {
        fixture.pass(Duration::from_secs(1)).await;
        client.stays_alive(&renewed, Phase::Granted).await;
    }
    // It was not renewed.
    until_removed(&raw, evidence.key).await;
    assert_eq!(client.is_gone(&silent, Phase::Granted).await, Loss::Expired);
}

/// etcd extends a lease whose keep-alives arrive although their answers are lost. Its client believes no claim on it then, and
/// cannot remove their keys. Other claims must not keep such a lease alive afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_ended_during_a_fault_frees_its_lock() {
    let case = shared().await;
    let (address, prefix) = (case.server.lock().address(), case.prefix.clone());
    let proxy = Proxy::start(address).await.expect("a port is free");
    let url = StoreUrl::parse(&format!("etcd://{}/{prefix}?command_timeout=1s", proxy.address()));
    let config = Config::from_url(&url.expect("a URL")).expect("settings");
    let backend = EtcdStore::open(config).await.expect("it connects");
    let lease = Duration::from_secs(4);
    let claim = |name: &str, number| {
        let id = ClaimId::new(ClientId::from_random([7; 16]), number);
        Arc::new(Claim::of(ClaimRef { key: key(name), id }, lease))
    };
    let acquire = async |claim: &Arc<Claim>| {
        let not_after = backend.clock().now() + SOON;
        backend.clone().acquire(claim.clone(), not_after).await
    };
    let renew = async |claim: &Claim| {
        let renewal = RenewRequest {
            claim: claim.at.clone(),
            lease,
            only: Phase::Granted,
            shorten_only: false,
            raise: None,
            downgrade: false,
        };
        backend.clone().renew([renewal].into_iter().collect()).await
    };
    let silent = claim("a", 1);
    let granted = acquire(&silent).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
    let ends = backend.clock().now() + lease;
    let until = async |time| {
        // sleep: etcd's clock cannot be moved.
        tokio::time::sleep(time - backend.clock().now()).await;
    };
    until(ends - lease / 3).await;
    proxy.swallow(Way::ToClient);
    let unanswered = tokio::time::timeout(lease / 8, renew(&silent)).await;
    assert!(
        unanswered.is_err() || matches!(unanswered.as_deref(), Ok([RenewReply::Unknown(_)])),
        "{unanswered:?}"
    );
    proxy.refuse();
    until(ends + lease / 8).await;
    proxy.heal();
    let fixture = Fixture::new(case).await;
    let other = fixture.client().await;
    let wanted = other.claim(&key("a"), Mode::Exclusive);
    let end = backend.clock().now() + lease * 3;
    let mut number = 1;
    let mut kept: Option<Arc<Claim>> = None;
    while !matches!(other.acquire(&wanted).await, AcquireReply::Granted(_)) {
        assert!(
            backend.clock().now() < end,
            "the lock of the claim that ended is never free"
        );
        // Another claim of that client, on another lock.
        let renewed = match &kept {
            Some(claim) => renew(claim).await.pop(),
            None => None,
        };
        if !matches!(renewed, Some(RenewReply::Alive { .. })) {
            number += 1;
            let next = claim("b", number);
            kept = matches!(acquire(&next).await, Ok(AcquireReply::Granted(_))).then_some(next);
        }
        // sleep: the pace of renewals.
        tokio::time::sleep(lease / 30).await;
    }
}

#[tokio::test]
async fn an_examination_names_a_member_that_does_not_answer() {
    let case = shared().await;
    let address = case.server.lock().address();
    let url = format!("etcd://{address},127.0.0.1:1/{}", case.prefix);
    let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings");
    let backend = EtcdStore::open(config).await.expect("a member answers");
    let findings = backend.examine().await.expect("it is examined");
    let about = |words: &str| {
        findings
            .iter()
            .filter(|finding| finding.what.contains(words))
            .count()
    };
    assert_eq!(about("does not answer"), 1, "{findings:?}");
    assert_eq!(about("the member 127.0.0.1:1 does not answer"), 1, "{findings:?}");
    assert_eq!(about("asks for no password"), 1, "{findings:?}");
}

#[tokio::test]
async fn a_revoked_lease_is_reported_at_once() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    let claim = client.claim(&key("k"), Mode::Exclusive);
    let (_, id) = key_of(&raw, &client, &claim).await;
    let hints = client.backend().clone().invalidations(claim.at.id.client());
    let mut hints = hints.expect("etcd reports losses");
    let next = tokio::time::timeout(SOON, hints.next()).await.expect("soon");
    assert_eq!(next, Some(Invalidation::All));
    raw.call(REVOKE, LeaseId { id }).await.expect("it ends");
    let next = tokio::time::timeout(SOON, hints.next()).await.expect("soon");
    assert_eq!(next, Some(Invalidation::Key(key("k"))));
    assert_eq!(client.is_gone(&claim, Phase::Granted).await, Loss::Session);
    client.finds_free(&key("k"), Mode::Exclusive).await;
}

/// R19: etcd's own lock service lets such a waiter hold the lock.
#[tokio::test]
async fn a_waiter_whose_lease_has_ended_is_not_granted() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, raw(&case));
    let held = clients[0].holds(&key("k"), Mode::Exclusive).await;
    let waiting = clients[1].queues(&key("k"), Mode::Exclusive).await;
    let contenders = RangeRequest::prefix(format!("{}/k/", case.prefix));
    let contenders = raw.call(RANGE, contenders).await.expect("a reply").kvs;
    let last = contenders.iter().max_by_key(|one| one.create_revision);
    let lease = last.expect("the waiter has a key").lease;
    raw.call(REVOKE, LeaseId { id: lease }).await.expect("it ends");
    clients[0].release(&held).await;
    clients[1].has_ended(&waiting).await;
    clients[0].finds_free(&key("k"), Mode::Exclusive).await;
}

#[tokio::test]
async fn a_hundred_claims_share_one_lease() {
    let case = alone().await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    for number in 0..201 {
        client.holds(&key(&number.to_string()), Mode::Exclusive).await;
    }
    let leases = case.server.lock().ask(&["lease", "list"]).expect("a reply");
    assert_eq!(leases.lines().next(), Some("found 3 leases"));
}

#[tokio::test]
async fn a_refused_try_writes_nothing() {
    let case = alone().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, raw(&case));
    let held = clients[0].claim(&key("k"), Mode::Exclusive);
    clients[0].granted(&held).await;
    let warm_up = clients[1].claim(&key("k"), Mode::Exclusive);
    let revision = async || {
        let reply = raw.call(RANGE, RangeRequest::key("k")).await.expect("a reply");
        reply.header.revision
    };
    // The first attempt creates the lease with its key.
    clients[1].waits(&warm_up).await;
    let before = revision().await;
    let tried = clients[1].claim(&key("k"), Mode::Exclusive);
    let reply = clients[1].acquire(&tried).await;
    assert!(matches!(reply, AcquireReply::Waiting { .. }), "{reply:?}");
    assert_eq!(revision().await, before);
}

/// Evicts a holder without removing its key.
async fn mark(raw: &Client, evidence: &LockEvidence, claim: &Claim) {
    let mark = PutRequest {
        key: evidence.key.clone(),
        value: format!("tenure1-evicted mutex {} 1 alice", claim.at.id).into(),
        ignore_lease: true,
        ..PutRequest::default()
    };
    raw.call(PUT, mark).await.expect("it is written");
}

/// Waits until the key of a claim that has ended is removed.
async fn until_removed(raw: &Client, key: impl Into<Vec<u8>>) {
    let key = key.into();
    let removing = async {
        while !raw
            .call(RANGE, RangeRequest::key(&*key))
            .await
            .expect("a reply")
            .kvs
            .is_empty()
        {
            // sleep: no event tells of the removal.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let removed = tokio::time::timeout(Duration::from_secs(20), removing).await;
    removed.expect("it is removed");
}

#[tokio::test]
async fn a_holder_removes_its_key_if_its_evictor_died() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, raw(&case));
    let claim = clients[0].claim(&key("k"), Mode::Exclusive);
    let (evidence, _) = key_of(&raw, &clients[0], &claim).await;
    mark(&raw, &evidence, &claim).await;
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

/// A lease that other claims keep alive would keep the notes of all evictions.
#[tokio::test]
async fn a_holder_that_knows_of_its_eviction_removes_the_note() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, raw(&case));
    let kept = clients[0].claim(&key("kept"), Mode::Exclusive);
    clients[0].granted(&kept).await;
    let claim = clients[0].claim(&key("k"), Mode::Exclusive);
    clients[0].granted(&claim).await;
    let evicted = clients[1].send_release(ReleaseRequest {
        target: ReleaseTarget::All(key("k")),
        cause: Cause::Evicted {
            by: Some("alice".into()),
        },
        successor: None,
        cooldown: Duration::ZERO,
    });
    evicted.await.freed_it(&claim);
    let by = Some("alice".into());
    assert_eq!(
        clients[0].is_gone(&claim, Phase::Granted).await,
        Loss::Evicted { by }
    );
    let folder = format!("\u{1}tenure/{}/", claim.at.id.client());
    let found = raw
        .call(RANGE, RangeRequest::prefix(folder))
        .await
        .expect("a reply");
    assert_eq!(found.kvs.len(), 1, "only the key of the lease: {:?}", found.kvs);
    clients[0].release(&kept).await.freed_it(&kept);
}

/// The key is on no lease any more. It would hold the lock for ever.
#[tokio::test]
async fn a_key_that_was_overwritten_by_hand_is_removed() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (clients, raw) = (fixture.two().await, raw(&case));
    let claim = clients[0].claim(&key("k"), Mode::Exclusive);
    let (evidence, _) = key_of(&raw, &clients[0], &claim).await;
    let by_hand = PutRequest {
        key: evidence.key.to_vec(),
        value: b"by hand".into(),
        ..PutRequest::default()
    };
    raw.call(PUT, by_hand).await.expect("a reply");
    clients[0].is_gone(&claim, Phase::Granted).await;
    let next = clients[1].claim(&key("k"), Mode::Exclusive);
    clients[1].granted_soon(&next).await;
}

/// Its place is the lock's name on its lease.
#[tokio::test]
async fn an_evicted_claim_gives_its_place_back() {
    let case = alone().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    for _ in 0..6 {
        let claim = client.fair(&key("k"), Mode::Exclusive);
        client.acquire(&claim).await;
        client.granted_soon(&claim).await;
        // sleep: every 250 ms the client gives back the places of claims that have ended.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (evidence, _) = key_of(&raw, &client, &claim).await;
        mark(&raw, &evidence, &claim).await;
        client.is_gone(&claim, Phase::Granted).await;
    }
    // The marked key is still there at the next claim, which needs another lease. A busy machine may need some more, but
    // not one for each claim.
    let leases = case.server.lock().ask(&["lease", "list"]).expect("a reply");
    let found = leases.lines().next().expect("a line");
    assert!(
        (2..=4).any(|number| found == format!("found {number} leases")),
        "{found}"
    );
}

#[tokio::test]
async fn a_lease_without_its_key_gets_no_further_claims() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let (client, raw) = (fixture.client().await, raw(&case));
    let first = client.claim(&key("a"), Mode::Exclusive);
    let (_, lease) = key_of(&raw, &client, &first).await;
    let lease_key = format!("\u{1}tenure/{}/{lease:x}", first.at.id.client());
    let found = raw.call(RANGE, RangeRequest::key(&*lease_key)).await;
    assert_eq!(found.expect("a reply").kvs.len(), 1);
    let deleted = raw.call(
        DELETE_RANGE,
        DeleteRangeRequest {
            key: lease_key.into(),
        },
    );
    deleted.await.expect("a reply");
    let second = client.claim(&key("b"), Mode::Exclusive);
    let (_, other) = key_of(&raw, &client, &second).await;
    assert_ne!(lease, other);
    client.stays_alive(&first, Phase::Granted).await;
    client.release(&first).await.freed_it(&first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_outlives_the_death_of_the_leader() {
    let mut cluster = EtcdCluster::start(&[]).expect("it starts");
    let url = StoreUrl::parse(&format!("{}/locks", cluster.url())).expect("a URL");
    let store = EtcdStore::open(Config::from_url(&url).expect("settings"));
    let store = store.await.expect("a member answers");
    let at = ClaimRef {
        key: key("k"),
        id: ClaimId::new(ClientId::from_random([7; 16]), 1),
    };
    let claim = Arc::new(Claim::of(at, Duration::from_secs(8)));
    let not_after = store.clock().now() + Duration::from_secs(5);
    let reply = store.clone().acquire(claim.clone(), not_after).await;
    let Ok(AcquireReply::Granted(grant)) = reply else {
        panic!("the lock is free, but the answer is {reply:?}")
    };
    let leader = cluster.leader().expect("a leader");
    cluster.member_mut(leader).process().kill();
    let killed = store.clock().now();
    loop {
        let renewal = [RenewRequest::of(&claim)].into_iter().collect();
        match store.clone().renew(renewal).await.pop() {
            Some(RenewReply::Alive { held_from, .. }) if held_from > killed => break,
            Some(RenewReply::Unknown(error)) => assert!(error.is_transient(), "{error:?}"),
            other => panic!("the lock is held, but the answer is {other:?}"),
        }
        assert!(
            store.clock().now() < grant.held_from + grant.lease,
            "it is renewed in time"
        );
        tokio::task::yield_now().await;
    }
}
