//! Requests and replies that arrive late or never, and changes of the lock meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::{Case, alone, shared};
use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, HolderId,
    LockKey, Mode, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Successor,
};
use tenure_etcd::client::{
    Client, DELETE_RANGE, DeleteRangeRequest, GRANT, LeaseGrantRequest, PUT, PutRequest, RANGE, RangeRequest,
};
use tenure_etcd::{Config, EtcdStore, StoreUrl};
use tenure_servers::{Data, Proxy, Way};
use tenure_testkit::suite::Fixture;

/// Time that each request takes to the server, once the network is slow.
const SLOW: Duration = Duration::from_millis(1500);

const LEASE: Duration = Duration::from_secs(60);

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

fn claim(name: &str, number: u64, lease: Duration) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([7; 16]), number);
    Arc::new(Claim::of(ClaimRef { key: key(name), id }, lease))
}

/// A store behind a proxy.
struct Remote {
    proxy: Proxy,
    store: Arc<dyn Backend>,
}

/// A proxy to the server of a case.
async fn proxy(case: &Case) -> Proxy {
    let address = case.server.lock().address();
    Proxy::start(address).await.expect("a port is free")
}

impl Remote {
    async fn open(case: &Case, options: &str) -> Remote {
        Remote::with_hosts(case, "", proxy(case).await, options).await
    }

    /// A store that connects to the hosts in `first`, each followed by a comma, and then to the proxy.
    async fn with_hosts(case: &Case, first: &str, proxy: Proxy, options: &str) -> Remote {
        let url = format!("etcd://{first}{}/{}{options}", proxy.address(), case.prefix);
        let config = Config::from_url(&StoreUrl::parse(&url).expect("a URL")).expect("settings");
        let store = EtcdStore::open(config).await.expect("it connects");
        Remote { proxy, store }
    }

    async fn acquire(&self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        let not_after = self.store.clock().now() + LEASE;
        self.store.clone().acquire(claim.clone(), not_after).await
    }

    async fn holds(&self, claim: &Arc<Claim>) {
        let reply = self.acquire(claim).await;
        assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
    }

    async fn release(&self, request: ReleaseRequest) -> ReleaseReply {
        let released = self.store.clone().release([request].into_iter().collect());
        released.await.pop().expect("a reply")
    }

    async fn renew(&self, claim: &Claim) -> RenewReply {
        let renewal = [RenewRequest::of(claim)].into_iter().collect();
        self.store.clone().renew(renewal).await.pop().expect("a reply")
    }

    async fn renews(&self, claim: &Claim) {
        let reply = self.renew(claim).await;
        assert!(matches!(reply, RenewReply::Alive { .. }), "{reply:?}");
    }

    /// Sends a request that changes nothing.
    async fn asks(&self) -> Result<(), BackendError> {
        self.store.clone().inspect(Query::Key(key("x"))).await.map(drop)
    }

    /// Opens another connection, after the old one broke.
    async fn reconnect(&self) {
        while self.asks().await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    async fn sleep_until(&self, time: tenure_backend::Instant) {
        // sleep: etcd's clock cannot be moved.
        tokio::time::sleep(time - self.store.clock().now()).await;
    }
}

fn raw(case: &Case) -> Arc<Client> {
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    Client::new(Config::from_url(&url).expect("settings")).expect("a client")
}

/// A contender as Go's client writes it.
async fn foreign(case: &Case, name: &str) {
    let raw = raw(case);
    let lease = raw.call(GRANT, LeaseGrantRequest { ttl: 60 }).await;
    let lease = lease.expect("a lease").id;
    let put = PutRequest {
        key: format!("{}/{name}/{lease:x}", case.prefix).into(),
        lease,
        ..PutRequest::default()
    };
    raw.call(PUT, put).await.expect("it is written");
}

/// A contender of the lock `a/b` stands before the claim in the folder of `a`, so the client reads a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_evicted_between_two_reads_is_not_granted() {
    let case = shared().await;
    foreign(&case, "a/b").await;
    let remote = Arc::new(Remote::open(&case, "").await);
    remote.holds(&claim("warm-up", 1, LEASE)).await;
    let fixture = Fixture::new(case).await;
    let other = fixture.client().await;
    remote.proxy.delay(Way::ToServer, SLOW);
    let evicted = claim("a", 2, LEASE);
    let asked = tokio::spawn({
        let (remote, evicted) = (remote.clone(), evicted.clone());
        async move { remote.acquire(&evicted).await }
    });
    while other.status(&key("a")).await.is_none() {
        tokio::task::yield_now().await;
    }
    other.evict(&evicted, "ada").await.freed_it(&evicted);
    other.holds(&key("a"), Mode::Exclusive).await;
    let reply = asked.await.expect("no panic");
    assert!(matches!(reply, Ok(AcquireReply::Ended)), "{reply:?}");
}

/// A store whose claim on `held` was acquired before the server restarted, and so in an earlier term. It must confirm each new key,
/// and a request takes [`SLOW`].
async fn of_an_earlier_term() -> (Case, Arc<Remote>) {
    let case = alone().await;
    let remote = Remote::open(&case, "").await;
    remote.holds(&claim("held", 1, LEASE)).await;
    // Creates a second lease, for a successor on the same lock.
    let waits = remote.acquire(&claim("held", 3, LEASE)).await;
    assert!(matches!(waits, Ok(AcquireReply::Waiting { .. })), "{waits:?}");
    case.server.lock().restart(Data::Kept).expect("it starts again");
    remote.reconnect().await;
    remote.proxy.delay(Way::ToServer, SLOW);
    (case, Arc::new(remote))
}

/// Breaks the connection while a claim is being confirmed: the first read has found another term, and the keep-alive that follows is
/// on its way.
async fn break_while_confirming(case: &Case, remote: &Remote, placed: &Claim) {
    let fixture = Fixture::new(case.clone()).await;
    let observer = fixture.client().await;
    let id = HolderId::Claim(placed.at.id);
    loop {
        let status = observer.status(&placed.at.key).await;
        if status.is_some_and(|status| status.holders[0].id == id) {
            break;
        }
        tokio::task::yield_now().await;
    }
    // sleep: the read takes one delay, and the keep-alive another one.
    tokio::time::sleep(SLOW * 3 / 2).await;
    remote.proxy.refuse();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_a_key_was_written_has_an_unknown_effect() {
    let (case, remote) = of_an_earlier_term().await;
    let placed = claim("k", 2, LEASE);
    let broken = break_while_confirming(&case, &remote, &placed);
    let (reply, ()) = tokio::join!(remote.acquire(&placed), broken);
    let error = reply.expect_err("it was not confirmed");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Unavailable, Effect::Unknown),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_may_be_placed_is_not_reported_as_waiting() {
    let (case, remote) = of_an_earlier_term().await;
    let (held, next) = (claim("held", 1, LEASE), claim("held", 2, LEASE));
    let successor = Successor {
        claim: next.clone(),
        not_after: remote.store.clock().now() + LEASE,
    };
    let request = ReleaseRequest {
        successor: Some(successor),
        ..ReleaseRequest::of(&held, Cause::Unlocked)
    };
    let broken = break_while_confirming(&case, &remote, &next);
    let (reply, ()) = tokio::join!(remote.release(request), broken);
    let ReleaseReply::Done { freed, successor, .. } = reply else {
        panic!("the claim was released, but the answer is {reply:?}")
    };
    assert_eq!(*freed, [HolderId::Claim(held.at.id)]);
    assert!(successor.is_none(), "{successor:?}");
}

/// The place is the lock's name on the lease: without it, the next claim needs another lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_read_fails_keeps_no_place() {
    let case = alone().await;
    foreign(&case, "a/b").await;
    let remote = Remote::open(&case, "").await;
    remote.holds(&claim("warm-up", 1, LEASE)).await;
    remote.proxy.delay(Way::ToServer, SLOW);
    let broken = async {
        // sleep: the first read takes one delay, and the second one another.
        tokio::time::sleep(SLOW * 3 / 2).await;
        remote.proxy.cut();
    };
    // The contender of `a/b` keeps a try from writing its key.
    let tried = claim("a", 2, LEASE);
    let (reply, ()) = tokio::join!(remote.acquire(&tried), broken);
    assert!(reply.is_err(), "{reply:?}");
    remote.proxy.heal();
    remote.reconnect().await;
    remote.holds(&claim("a", 3, LEASE)).await;
    // One is that of the foreign contender.
    let leases = case.server.lock().ask(&["lease", "list"]).expect("a reply");
    assert_eq!(leases.lines().next(), Some("found 2 leases"));
}

/// The request may still arrive and write the key, once the other one has left. So the claim must not try another lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_flight_waits_for_its_own_place() {
    let case = shared().await;
    let remote = Remote::open(&case, "?command_timeout=3s").await;
    remote.holds(&claim("held", 1, LEASE)).await;
    let raw = raw(&case);
    let held = RangeRequest::prefix(format!("{}/held/", case.prefix));
    let lease = raw.call(RANGE, held).await.expect("a reply").kvs[0].lease;
    remote.proxy.swallow(Way::ToServer);
    let unanswered = claim("k", 2, LEASE);
    let lost = remote.acquire(&unanswered).await.expect_err("no reply comes");
    assert_eq!(lost.effect(), Effect::Unknown, "{lost}");
    remote.proxy.heal();
    remote.reconnect().await;
    let key: Vec<u8> = format!("{}/k/{lease:x}", case.prefix).into();
    let by_hand = PutRequest {
        key: key.clone(),
        value: b"by hand".into(),
        lease,
        ..PutRequest::default()
    };
    raw.call(PUT, by_hand).await.expect("it is written");
    let busy = remote
        .acquire(&unanswered)
        .await
        .expect_err("its place is in use");
    assert_eq!(
        (busy.fault(), busy.effect()),
        (Fault::Unavailable, Effect::None),
        "{busy}"
    );
    raw.call(DELETE_RANGE, DeleteRangeRequest { key: key.clone() })
        .await
        .expect("it is deleted");
    remote.holds(&unanswered).await;
    let placed = raw.call(RANGE, RangeRequest::key(key)).await.expect("a reply");
    assert_eq!(placed.kvs.len(), 1);
}

/// etcd still has the lease, because only the answers to its keep-alives were lost.
#[tokio::test(flavor = "multi_thread")]
async fn no_claim_is_placed_on_a_lease_that_was_given_up() {
    const SHORT: Duration = Duration::from_secs(12);
    let case = shared().await;
    let remote = Remote::open(&case, "?command_timeout=1s").await;
    let now = || remote.store.clock().now();
    remote.holds(&claim("a", 1, SHORT)).await;
    let ends = now() + SHORT;
    let unanswered = claim("b", 2, SHORT);
    let (acquire, proxy) = (|| remote.acquire(&unanswered), &remote.proxy);
    let fails = async || {
        let reply = acquire().await;
        assert!(reply.is_err(), "{reply:?}");
        proxy.cut();
        proxy.heal();
        remote.reconnect().await;
    };
    remote.sleep_until(ends - SHORT * 3 / 4).await;
    proxy.swallow(Way::ToServer);
    fails().await;
    // The lease is a third of its length old: the client sends a keep-alive.
    remote.sleep_until(ends - SHORT / 2).await;
    proxy.swallow(Way::ToClient);
    fails().await;
    proxy.refuse();
    // The claim on `a` ends, and its key cannot be removed.
    remote.sleep_until(ends + SHORT / 12).await;
    proxy.heal();
    remote.reconnect().await;
    remote.holds(&unanswered).await;
    remote.renews(&unanswered).await;
}

/// The client would delete the key of a claim that its holder has renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_reply_to_an_older_renewal_ends_no_claim() {
    const LIMIT: Duration = Duration::from_secs(4);
    let case = shared().await;
    let (first, second) = (proxy(&case).await, proxy(&case).await);
    let hosts = format!("{},", first.address());
    let remote = Remote::with_hosts(&case, &hosts, second, "?command_timeout=4s").await;
    let remote = Arc::new(remote);
    let held = claim("k", 1, LIMIT * 3);
    remote.holds(&held).await;
    // The stream of keep-alives stays with the first proxy. Other requests leave it for the second one.
    remote.renews(&held).await;
    first.hold(Way::ToClient);
    remote.asks().await.expect_err("no reply comes");
    first.heal();
    remote.renews(&held).await;
    remote.proxy.hold(Way::ToClient);
    // The first request that fails makes later ones leave the second proxy, while the older renewal still waits there.
    let failing = tokio::spawn({
        let remote = remote.clone();
        async move { remote.asks().await }
    });
    // sleep: the older renewal must not fail before the request does, nor before its reply arrives.
    tokio::time::sleep(LIMIT / 2).await;
    let shorter = Claim {
        lease: LIMIT,
        ..(*held).clone()
    };
    let older = tokio::spawn({
        let remote = remote.clone();
        async move { remote.renew(&shorter).await }
    });
    failing.await.expect("no panic").expect_err("no reply comes");
    remote.renews(&held).await;
    assert!(
        !older.is_finished(),
        "the reply to the older renewal is held back"
    );
    remote.proxy.heal();
    let late = older.await.expect("no panic");
    assert!(matches!(late, RenewReply::Alive { .. }), "{late:?}");
    // sleep: until the lease has passed for which the older renewal has asked.
    tokio::time::sleep(LIMIT).await;
    remote.renews(&held).await;
}

/// The claim needs a lease in etcd that is not there. Two requests create it, and the next one would write the claim's key.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_comes_too_late_is_not_written() {
    let case = alone().await;
    let (remote, raw) = (Remote::open(&case, "").await, raw(&case));
    let revision = async || {
        let reply = raw.call(RANGE, RangeRequest::key("x")).await;
        reply.expect("a reply").header.revision
    };
    let before = revision().await;
    remote.proxy.delay(Way::ToServer, SLOW);
    let not_after = remote.store.clock().now() + SLOW;
    let acquired = remote.store.clone().acquire(claim("k", 1, LEASE), not_after);
    let reply = acquired.await;
    assert!(matches!(reply, Ok(AcquireReply::TooLate)), "{reply:?}");
    assert_eq!(
        revision().await,
        before + 1,
        "only the lease's own key is written"
    );
}

/// Otherwise a call waits for the attempts of all calls before it to connect.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_a_silent_host_fail_together() {
    const SOON: Duration = Duration::from_secs(5);
    let case = shared().await;
    let remote = Remote::open(&case, "?connect_timeout=1s").await;
    let held = claim("held", 1, LEASE);
    remote.holds(&held).await;
    for direction in [Way::ToServer, Way::ToClient] {
        remote.proxy.swallow(direction);
    }
    remote.proxy.cut();
    remote.asks().await.expect_err("the host is silent");
    // Another length of lease, so that the claims need a lease in etcd that is not there.
    let claims: Vec<_> = (2..12)
        .map(|number| claim(&number.to_string(), number, LEASE / 2))
        .collect();
    let begun = Instant::now();
    for reply in join_all(claims.iter().map(|claim| remote.acquire(claim))).await {
        let error = reply.expect_err("the host is silent");
        assert!(error.is_transient(), "{error:?}");
    }
    assert!(begun.elapsed() < SOON, "acquires take {:?}", begun.elapsed());
    let begun = Instant::now();
    for reply in join_all(claims.iter().map(|_| remote.renew(&held))).await {
        assert!(matches!(reply, RenewReply::Unknown(_)), "{reply:?}");
    }
    assert!(begun.elapsed() < SOON, "renewals take {:?}", begun.elapsed());
}
