//! Many claims: how many requests and wake-ups they cost, and how soon a loss is known.

mod case;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use case::{Case, alone, key, node_of, shared};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use tenure_backend::{Claim, Invalidation, Invalidations, Loss, Mode, Phase, RenewReply, RenewRequest};
use tenure_testkit::suite::{Fixture, TestClient};

/// Time limit for what a test waits for.
const SOON: Duration = Duration::from_secs(10);

/// Number of claims that are held at once.
const CLAIMS: usize = 10_000;

/// Number of claims that are acquired together.
const TOGETHER: usize = 250;

/// Number of nodes that a store checks in one request.
const CHECKED_TOGETHER: usize = 500;

/// A holder that hears of its loss only by a renewal would hear of it after about 10 s.
const LONG_BEFORE_A_RENEWAL: Duration = Duration::from_secs(1);

/// Number of losses of each kind, of whose notices the median is judged.
const ROUNDS: usize = 30;

/// A client that holds many claims.
struct Holder {
    fixture: Fixture,
    client: TestClient,
    claims: Vec<Arc<Claim>>,
}

impl Holder {
    /// Acquires all claims. They are renewed meanwhile, as the engine does: at a third of their lease.
    async fn of_all(case: &Case, lease: Duration) -> Self {
        let fixture = Fixture::new(case.clone()).await;
        let client = fixture.client().await;
        let mut holder = Holder {
            fixture,
            client,
            claims: Vec::new(),
        };
        let mut renewed = Instant::now();
        while holder.claims.len() < CLAIMS {
            let first = holder.claims.len();
            let client = &holder.client;
            let some = (first..first + TOGETHER).map(|number| {
                client.claim_as(&key(&format!("k{number}")), Mode::Exclusive, |claim| {
                    claim.lease = lease
                })
            });
            let some: Vec<Arc<Claim>> = some.collect();
            join_all(some.iter().map(|claim| client.granted(claim))).await;
            holder.claims.extend(some);
            if renewed.elapsed() > lease / 3 {
                renewed = Instant::now();
                holder.renew().await;
            }
        }
        holder
    }

    /// Renews all claims.
    async fn renew(&self) {
        let most = self.fixture.profile().limits.max_batch.get() as usize;
        for batch in self.claims.chunks(most) {
            let renewals = batch.iter().map(|claim| RenewRequest::of(claim)).collect();
            let replies = self.client.send_renewals(renewals).await;
            let lost = replies
                .iter()
                .find(|reply| !matches!(reply, RenewReply::Alive { .. }));
            assert!(lost.is_none(), "{lost:?}");
        }
    }

    /// The number of requests with which a round of renewals may begin and go on: batches do not end where those of the store do.
    fn requests_of_a_round(&self) -> usize {
        let most = self.fixture.profile().limits.max_batch.get() as usize;
        CLAIMS.div_ceil(CHECKED_TOGETHER) + CLAIMS.div_ceil(most)
    }
}

/// The number of requests that the server has received, with those that ask for it.
fn received(case: &Case) -> usize {
    let answer = case.server.lock().ask("srvr").expect("an answer");
    let count = answer.lines().find_map(|line| line.strip_prefix("Received: "));
    count.expect("a count").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_claims_are_renewed_by_few_requests() {
    let case = alone().await;
    let holder = Holder::of_all(&case, Duration::from_secs(60)).await;
    for _ in 0..3 {
        let before = received(&case);
        holder.renew().await;
        let requests = received(&case) - before;
        // Pings and checks of sessions go on meanwhile.
        let most = holder.requests_of_a_round() + 20;
        assert!(
            requests <= most,
            "{requests} requests, at most {most} are expected"
        );
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn ten_thousand_claims_are_held_for_three_leases() {
        const LEASE: Duration = Duration::from_secs(15);
        let case = alone().await;
        let holder = Holder::of_all(&case, LEASE).await;
        let (begun, before) = (Instant::now(), received(&case));
        let mut rounds = 0;
        while begun.elapsed() < 3 * LEASE {
            holder.renew().await;
            rounds += 1;
            let next = LEASE * rounds / 3;
            // sleep: the pace of renewals.
            tokio::time::sleep(next.saturating_sub(begun.elapsed())).await;
        }
        let requests = received(&case) - before;
        // Beside the renewals, each second has at most a check and a ping of each of the two sessions, and the test asks once.
        let seconds = begun.elapsed().as_secs() as usize + 1;
        let most = holder.requests_of_a_round() * rounds as usize + 4 * seconds + 1;
        println!("{requests} requests in {rounds} rounds of renewals");
        assert!(
            requests <= most,
            "{requests} requests, at most {most} are expected"
        );
        for claim in holder.claims.chunks(TOGETHER) {
            let released = join_all(claim.iter().map(|claim| holder.client.release(claim))).await;
            for (claim, released) in claim.iter().zip(released) {
                released.freed_it(claim);
            }
        }
    }
}

#[tokio::test]
async fn two_hundred_waiters_are_woken_once_each_in_order() {
    const WAITERS: usize = 200;
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let [holder, waiter] = fixture.two().await;
    let mut held = holder.claim(&key("k"), Mode::Exclusive);
    holder.granted(&held).await;
    let mut queue = Vec::new();
    for _ in 0..WAITERS {
        let claim = waiter.queues(&key("k"), Mode::Exclusive).await;
        let wakes = waiter.watch(&claim).await.expect("a watch");
        queue.push((claim, wakes));
    }
    for at in 0..WAITERS {
        let client = if at == 0 { &holder } else { &waiter };
        client.release(&held).await.freed_it(&held);
        let (claim, wakes) = &mut queue[at];
        let woken = tokio::time::timeout(SOON, wakes.next()).await;
        assert_eq!(woken, Ok(Some(())), "waiter {at}");
        waiter.granted(claim).await;
        held = claim.clone();
        let others = queue.iter_mut().map(|(_, wakes)| wakes.next().now_or_never());
        assert_eq!(others.flatten().count(), 0, "only waiter {at} is woken");
    }
}

/// Closes a session, as an operator can: its password follows from its number.
fn close_session(case: &Case, session: i64) {
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = (session.cast_unsigned() ^ 0xb341_5c00 ^ 0x5_deec_e66d) & MASK;
    let mut password = Vec::new();
    for _ in 0..4 {
        seed = seed.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & MASK;
        password.extend(((seed >> 16) as u32).to_le_bytes());
    }
    let (protocol, zxid, timeout, length, read_only) = (0_i32, 0_i64, 60_000_i32, 16_i32, 0_u8);
    let mut connect = protocol.to_be_bytes().to_vec();
    connect.extend(zxid.to_be_bytes());
    connect.extend(timeout.to_be_bytes());
    connect.extend(session.to_be_bytes());
    connect.extend(length.to_be_bytes());
    connect.extend(&password);
    connect.push(read_only);
    let (xid, close) = (1_i32, -11_i32);
    let close = [xid.to_be_bytes(), close.to_be_bytes()].concat();
    let mut stream = TcpStream::connect(case.server.lock().address()).expect("a connection");
    for message in [connect, close] {
        let length = i32::try_from(message.len()).expect("it is short").to_be_bytes();
        stream
            .write_all(&[&length[..], &message].concat())
            .expect("it is sent");
    }
    let mut replies = Vec::new();
    stream
        .read_to_end(&mut replies)
        .expect("the server closes the connection");
    assert_eq!(replies.len(), 61, "it answers both: {replies:?}");
}

/// The hints of a claim's client, behind the first one.
async fn hints(client: &TestClient, claim: &Claim) -> Invalidations {
    let hints = client.backend().clone().invalidations(claim.at.id.client());
    let mut hints = hints.expect("ZooKeeper reports losses");
    assert_eq!(hints.next().await, Some(Invalidation::All));
    hints
}

/// The median, after printing it: the tests that print show it with `--nocapture`.
fn median(what: &str, mut took: Vec<Duration>) -> Duration {
    took.sort();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{what}: median {median:?}, longest {longest:?}");
    median
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_is_reported_at_once() {
    let case = shared().await;
    let proxy = case.proxy().await;
    let through = Case {
        via: vec![proxy.address()],
        ..case.clone()
    };
    let client = Fixture::new(through).await.client().await;
    let raw = case.raw().await;
    let mut learned = Vec::new();
    for _ in 0..ROUNDS {
        // The only session has this length, so no hint comes from another one.
        let claim = client.claim_as(&key("k"), Mode::Exclusive, |claim| {
            claim.lease = Duration::from_secs(30);
        });
        let node = node_of(&client, &claim).await.path;
        let stat = raw.exists(&node).await.expect("a reply").expect("a node");
        let mut hints = hints(&client, &claim).await;
        // Otherwise the holder would take its session over again before it is closed.
        proxy.refuse();
        close_session(&case, stat.ephemeral_owner);
        let closed = Instant::now();
        proxy.heal();
        let told = tokio::time::timeout(SOON, hints.next()).await;
        assert_eq!(told, Ok(Some(Invalidation::All)));
        assert_eq!(client.is_gone(&claim, Phase::Granted).await, Loss::Session);
        learned.push(closed.elapsed());
    }
    let median = median("a closed session", learned);
    assert!(median < LONG_BEFORE_A_RENEWAL, "{median:?}");
}

#[tokio::test]
async fn a_holder_learns_of_its_eviction_at_once() {
    let case = shared().await;
    let fixture = Fixture::new(case.clone()).await;
    let clients = fixture.two().await;
    let mut learned = Vec::new();
    for _ in 0..ROUNDS {
        let claim = clients[0].holds(&key("k"), Mode::Exclusive).await;
        let mut hints = hints(&clients[0], &claim).await;
        let begun = Instant::now();
        let evicting = clients[1].evict(&claim, "alice");
        let noticed = async {
            let told = tokio::time::timeout(SOON, hints.next()).await;
            assert_eq!(told, Ok(Some(Invalidation::Key(key("k")))));
            let by = Some("alice".into());
            assert_eq!(
                clients[0].is_gone(&claim, Phase::Granted).await,
                Loss::Evicted { by }
            );
            begun.elapsed()
        };
        let (noticed, released) = tokio::join!(noticed, evicting);
        learned.push(noticed);
        released.freed_it(&claim);
    }
    let median = median("an eviction", learned);
    assert!(median < LONG_BEFORE_A_RENEWAL, "{median:?}");
}
