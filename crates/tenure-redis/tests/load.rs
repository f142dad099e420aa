//! Load: 3,000 callers are served and delay no renewal, and batches do not wait for the replies to earlier ones.

mod fixture;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fixture::*;
use futures_util::future::join_all;
use tenure_backend::{Backend, Batch, Claim, Mode, RenewReply, RenewRequest};
use tenure_servers::Way;

/// Awaits a call, and adds its polls to `polled`, which several calls share.
async fn counted<F: Future + Unpin>(mut call: F, polled: Arc<AtomicUsize>) -> F::Output {
    poll_fn(|cx| {
        let answer = Pin::new(&mut call).poll(cx);
        polled.fetch_add(1, Ordering::Relaxed);
        answer
    })
    .await
}

/// Fair claims are not batched, so 3,000 calls wait to be sent. The server must get at most 300 of them before the
/// renewal.
#[tokio::test(flavor = "multi_thread")]
async fn three_thousand_callers_are_served_and_delay_no_renewal() {
    let proxied = ProxiedFixture::new().await;
    let (fixture, client, store) = (&proxied.fixture, &proxied.client, &proxied.store);
    let held = hold(client, &proxied.key()).await;
    fixture.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    fixture.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    proxied.proxy.hold(Way::ToServer);
    let not_after = client.now() + Duration::from_secs(5);
    let asked = Arc::new(AtomicUsize::new(0));
    let call = |_| {
        let claim = client.fair(&proxied.key(), Mode::Exclusive);
        tokio::spawn(counted(store.clone().acquire(claim, not_after), asked.clone()))
    };
    let callers: Vec<_> = (0..3_000).map(call).collect();
    wait_until(|| asked.load(Ordering::Relaxed) >= callers.len());
    let renewed = store.clone().renew(Batch::from_iter([RenewRequest::of(&held)]));
    let renewed = tokio::spawn(counted(renewed, asked.clone()));
    wait_until(|| asked.load(Ordering::Relaxed) > callers.len());
    proxied.proxy.heal();
    for answer in soon(join_all(callers)).await {
        assert!(is_granted(&answer.expect("no task fails")));
    }
    let renewed = soon(renewed).await.expect("no task fails");
    assert!(matches!(&renewed[..], [RenewReply::Alive { .. }]), "{renewed:?}");
    fixture.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    // The slow log begins with the latest call. Only a renewal has these keys in this order.
    let calls = fixture.text(&["SLOWLOG", "GET", "-1"]);
    let (client, key) = (held.at.id.client(), &held.at.key);
    let renewal = format!(" tenure_tokens tenure_client:{client} {key} ");
    let (_, before) = calls.split_once(&renewal).expect("it was called");
    let before = before.matches(" EVALSHA ").count();
    assert!(before <= 300, "{before} calls went before it");
}

/// Batches do not wait for the replies to earlier ones.
///
/// On a single thread, all callers run before the sender tasks, so their claims are batched.
#[tokio::test]
async fn a_distant_server_gets_all_calls_before_its_first_reply() {
    let server = Server::start();
    let (proxy, store) = server.at_distance(Duration::from_millis(5)).await;
    let fixture = Fixture::on(server).await;
    let client = fixture.store.client().await;
    let claims: Vec<_> = (0..300)
        .map(|_| client.claim(&fixture.store.key(), Mode::Exclusive))
        .collect();
    proxy.hold(Way::ToClient);
    let not_after = client.now() + Duration::from_secs(5);
    let calls = claims.iter().cloned();
    let calls: Vec<_> = calls
        .map(|claim| tokio::spawn(store.clone().acquire(claim, not_after)))
        .collect();
    let is_placed = |claim: &Arc<Claim>| fixture.exists(claim.at.key.as_str());
    soon(async {
        while !claims.iter().all(is_placed) {
            // sleep: no event announces that all claims are placed.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.heal();
    for answer in soon(join_all(calls)).await {
        assert!(is_granted(&answer.expect("no task fails")));
    }
}
