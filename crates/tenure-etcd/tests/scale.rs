//! Many claims: how many requests, leases and wake-ups they cost, and how soon a loss is known.

mod case;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use case::{alone, shared};
use futures_util::StreamExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Claim, Fairness, Invalidation, LockKey, Mode, Phase, RenewReply, RenewRequest,
};
use tenure_etcd::client::{Client, LeaseId, RANGE, REVOKE, RangeRequest};
use tenure_etcd::{Config, StoreUrl};
use tenure_testkit::suite::Fixture;
use tokio::sync::Notify;

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(60);

/// Number of claims that are acquired together.
const TOGETHER: usize = 250;

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a name")
}

fn renewal(claim: &Claim) -> RenewRequest {
    RenewRequest {
        claim: claim.at.clone(),
        lease: claim.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
        downgrade: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_claims_are_renewed_by_a_hundred_reads() {
    let case = alone().await;
    let fixture = Fixture::new(case.clone()).await;
    let client = fixture.client().await;
    let claims: Vec<Arc<Claim>> = (0..10_000)
        .map(|number| client.claim(&key(&format!("k{number}")), Mode::Exclusive))
        .collect();
    for some in claims.chunks(TOGETHER) {
        join_all(some.iter().map(|claim| client.granted(claim))).await;
    }
    let leases = case.server.lock().ask(&["lease", "list"]).expect("a reply");
    let leases = leases.lines().count() - 1;
    assert!(leases <= 102, "{leases} leases");
    let count = |service: &str, method: &str, kind: &str| {
        let name = format!(
            "grpc_server_msg_received_total{{grpc_method=\"{method}\",grpc_service=\"etcdserverpb.{service}\",grpc_type=\"{kind}\"}}"
        );
        case.server.lock().metric(&name).expect("a metric")
    };
    let counts = || {
        [
            count("KV", "Txn", "unary"),
            count("Lease", "LeaseKeepAlive", "bidi_stream"),
        ]
    };
    let most = fixture.profile().limits.max_batch.get() as usize;
    for _ in 0..3 {
        let before = counts();
        for batch in claims.chunks(most) {
            let replies = client
                .send_renewals(batch.iter().map(|claim| renewal(claim)).collect())
                .await;
            let lost = replies
                .iter()
                .find(|reply| !matches!(reply, RenewReply::Alive { .. }));
            assert!(lost.is_none(), "{lost:?}");
        }
        let [reads, kept] = counts();
        // Batches do not end where the claims of a lease do.
        let most = (leases + 10_000_usize.div_ceil(most)) as f64;
        assert!(
            reads - before[0] <= most && kept - before[1] <= most,
            "{before:?} became {:?}",
            [reads, kept]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_waiters_are_woken_once_each_in_order() {
    let case = alone().await;
    let fixture = Fixture::new(case).await;
    let (client, name) = (fixture.client().await, key("k"));
    let holder = client.holds(&name, Mode::Exclusive).await;
    let (polls, order) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (settled, begins) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut waiters = Vec::new();
    for number in 0..200 {
        let claim = client.claim_as(&name, Mode::Exclusive, |claim| claim.fairness = Fairness::Fifo);
        client.waits(&claim).await;
        let mut wakes = client.watch(&claim).await.expect("etcd wakes waiters");
        let (client, polls, order) = (client.clone(), polls.clone(), order.clone());
        let (settled, begins) = (settled.clone(), begins.clone());
        waiters.push(tokio::spawn(async move {
            // The watch begins with a wake-up if another key was written since the poll.
            while tokio::time::timeout(Duration::from_secs(1), wakes.next())
                .await
                .is_ok()
            {
                client.waits(&claim).await;
            }
            settled.fetch_add(1, Ordering::Relaxed);
            begins.notified().await;
            loop {
                wakes.next().await.expect("the watch goes on");
                polls.fetch_add(1, Ordering::Relaxed);
                if let AcquireReply::Granted(_) = client.acquire(&claim).await {
                    order.lock().push(number);
                    client.release(&claim).await.freed_it(&claim);
                    return;
                }
            }
        }));
    }
    let all_settled = async {
        while settled.load(Ordering::Relaxed) < 200 {
            // sleep: until each waiter has had no wake-up for a second.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, all_settled)
        .await
        .expect("wake-ups end");
    for _ in 0..200 {
        begins.notify_one();
        tokio::task::yield_now().await;
    }
    begins.notify_waiters();
    client.release(&holder).await.freed_it(&holder);
    tokio::time::timeout(SOON, join_all(waiters))
        .await
        .expect("all are granted");
    assert_eq!(*order.lock(), (0..200).collect::<Vec<_>>());
    // On a busy machine a watch may begin late, with a wake-up of its own.
    let polls = polls.load(Ordering::Relaxed);
    assert!((200..220).contains(&polls), "{polls} wake-ups");
}

/// The figures are printed with `--nocapture`. The limit is far above them: it only tells a notice from the next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_known_long_before_the_next_renewal() {
    const ROUNDS: usize = 30;
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let [client, operator] = fixture.two().await;
    let url = StoreUrl::parse(&case.url()).expect("a URL");
    let raw = Client::new(Config::from_url(&url).expect("settings")).expect("a client");
    for is_revoked in [true, false] {
        let mut took = Vec::new();
        for round in 0..ROUNDS {
            let one = client.with_new_id();
            let name = key(&format!("{is_revoked}-{round}"));
            let claim = one.claim(&name, Mode::Exclusive);
            one.granted(&claim).await;
            let hints = one.backend().clone().invalidations(claim.at.id.client());
            let mut hints = hints.expect("etcd reports losses");
            let first = tokio::time::timeout(SOON, hints.next()).await.expect("soon");
            assert_eq!(first, Some(Invalidation::All));
            let folder = RangeRequest::prefix(format!("{}/{}/", case.prefix, name.as_str()));
            let lease = raw.call(RANGE, folder).await.expect("a reply").kvs[0].lease;
            let begun = Instant::now();
            let ending = async {
                match is_revoked {
                    true => _ = raw.call(REVOKE, LeaseId { id: lease }).await.expect("it ends"),
                    false => operator.evict(&claim, "alice").await.freed_it(&claim),
                }
            };
            let noticed = async {
                let hint = tokio::time::timeout(SOON, hints.next()).await.expect("soon");
                assert_eq!(hint, Some(Invalidation::Key(name.clone())));
                one.is_gone(&claim, Phase::Granted).await;
                begun.elapsed()
            };
            took.push(tokio::join!(ending, noticed).1);
        }
        took.sort();
        let median = took[ROUNDS / 2];
        println!(
            "revoked: {is_revoked}, median {median:?}, longest {:?}",
            took[ROUNDS - 1]
        );
        assert!(median < fixture.long_lease() / 12, "{took:?}");
    }
}
