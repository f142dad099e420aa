//! Calls that wait for one of their client's few connections: their order, their time limits, and attempts to connect that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::postgres_fixture::*;
use futures_util::future::join_all;
use tenure_backend::{AcquireReply, Fault, Mode, ReleaseReply};
use tenure_servers::{Proxy, Way};
use tenure_testkit::suite::{Fixture, TestClient};

/// A case with one client that connects through a proxy.
async fn behind_a_proxy(options: &str) -> (Case, Proxy, Fixture, TestClient) {
    let case = Case::new("version").await;
    let proxy = Proxy::start(case.address()).await.expect("a port is free");
    let far = case.clone().at(proxy.address()).with(options);
    let fixture = far.fixture().await;
    let client = fixture.client().await;
    (case, proxy, fixture, client)
}

/// Each reply takes 100 ms, so the acquires that wait take much longer than the two calls that overtake them.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_and_releases_overtake_acquires() {
    const ACQUIRES: usize = 60;
    let works = [1, 2, 4].map(async |connections| {
        let (_case, proxy, fixture, client) = behind_a_proxy(&format!("connections={connections}")).await;
        let [renewed, released] = [fixture.key(), fixture.key()];
        let renewed = client.holds(&renewed, Mode::Exclusive).await;
        let released = client.holds(&released, Mode::Exclusive).await;
        proxy.delay(Way::ToClient, Duration::from_millis(100));
        let answered = Arc::new(AtomicUsize::new(0));
        let acquires = (0..ACQUIRES).map(|_| {
            let (client, key, answered) = (client.clone(), fixture.key(), answered.clone());
            tokio::spawn(async move {
                client.holds(&key, Mode::Exclusive).await;
                answered.fetch_add(1, Ordering::Relaxed);
            })
        });
        let acquires: Vec<_> = acquires.collect();
        // By then the other acquires wait for a connection.
        wait_until("one is granted", || answered.load(Ordering::Relaxed) > 0).await;
        let store = client.backend();
        let (renewal, release) = tokio::join!(
            async { (renew(store, &renewed).await, answered.load(Ordering::Relaxed)) },
            async {
                let reply = release(store, unlock_of(&released)).await;
                (reply, answered.load(Ordering::Relaxed))
            },
        );
        assert_alive(&renewal.0);
        assert!(matches!(release.0, ReleaseReply::Done { .. }), "{release:?}");
        for before in [renewal.1, release.1] {
            assert!(
                before < ACQUIRES / 2,
                "{before} acquires went first over {connections} connections"
            );
        }
        proxy.delay(Way::ToClient, Duration::ZERO);
        for acquired in join_all(acquires).await {
            acquired.expect("it is granted");
        }
    });
    join_all(works).await;
}

/// The only connection serves another call until `not_after`, and then breaks. A call that connected would fail: the proxy
/// refuses.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_waits_past_its_limit_is_not_sent() {
    let (case, proxy, fixture, client) = behind_a_proxy("connections=1").await;
    let [first, second] = [fixture.key(), fixture.key()];
    proxy.hold(Way::ToClient);
    let taking = {
        let (store, claim) = (client.backend().clone(), client.claim(&first, Mode::Exclusive));
        tokio::spawn(async move { acquire(&store, &claim).await })
    };
    wait_until("the first call uses the connection", || {
        case.row("1", &first) == "1"
    })
    .await;
    let late = {
        let (store, claim) = (client.backend().clone(), client.claim(&second, Mode::Exclusive));
        let not_after = client.now() + Duration::from_secs(1);
        tokio::spawn(async move { store.acquire(claim, not_after).await })
    };
    fixture.pass(Duration::from_secs(1)).await;
    proxy.refuse();
    taking
        .await
        .expect("no panic")
        .expect_err("its connection has ended");
    let late = late.await.expect("no panic");
    assert!(matches!(late, Ok(AcquireReply::TooLate)), "{late:?}");
}

/// B4: the claim holds its row, but the reply was lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_unconfirmed_holder_may_be_polled_after_its_limit() {
    let (_case, proxy, fixture, client) = behind_a_proxy("connections=1").await;
    let claim = client.claim(&fixture.key(), Mode::Exclusive);
    let not_after = client.now() + Duration::from_secs(1);
    proxy.cut_after(Way::ToClient, 0);
    let lost = client.acquire_by(&claim, not_after).await;
    lost.expect_err("the reply is lost");
    fixture.pass(Duration::from_secs(1)).await;
    let reply = client.polled_by(&claim, not_after).await;
    assert!(matches!(reply, AcquireReply::Granted(_)), "{reply:?}");
}

/// A server that drops packets lets each attempt to connect wait for its time-out. The calls that wait meanwhile are late, but
/// the error says why.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_share_a_failed_attempt_to_connect() {
    const CALLS: usize = 40;
    let (_case, proxy, fixture, client) = behind_a_proxy("connect_timeout=1s").await;
    proxy.hold(Way::ToServer);
    proxy.cut();
    let not_after = client.now() + Duration::from_millis(500);
    let begun = Instant::now();
    let calls = (0..CALLS).map(|_| {
        let claim = client.claim(&fixture.key(), Mode::Exclusive);
        client.backend().clone().acquire(claim, not_after)
    });
    for reply in join_all(calls).await {
        let error = reply.expect_err("the server does not answer");
        assert_eq!(error.fault(), Fault::Unavailable, "{error:?}");
    }
    // Four at a time, their attempts would take 10 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    proxy.heal();
    let held = client.holds(&fixture.key(), Mode::Exclusive).await;
    client.release(&held).await.freed_it(&held);
}
