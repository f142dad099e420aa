//! More callers at once than a connection takes, or than a far server answers meanwhile: everybody's turn comes, and what is
//! held is kept. What becomes of those that travel together is in `together.rs`.

mod stage;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use stage::{Scene, Server, Stage, soon, wait_until};
use tenure_backend::{Backend, Batch, Claim, Mode, Phase, Renewal, Renewed, Standing};
use tenure_servers::Way;

/// A call, and how often one was polled.
async fn told<F: Future + Unpin>(mut call: F, polled: Arc<AtomicUsize>) -> F::Output {
    poll_fn(|cx| {
        let answer = Pin::new(&mut call).poll(cx);
        polled.fetch_add(1, Ordering::Relaxed);
        answer
    })
    .await
}

/// More than may wait to be written, of a kind that is not gathered.
#[tokio::test(flavor = "multi_thread")]
async fn too_many_callers_at_once_are_all_served_and_a_renewal_waits_for_few_of_them() {
    let scene = Scene::new().await;
    let (stage, client, store) = (&scene.stage, &scene.client, &scene.store);
    let held = client.claim(&scene.key(), Mode::Exclusive);
    client.granted(&held).await;
    stage.ask(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    stage.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let claims: Vec<_> = (0..3_000)
        .map(|_| client.fair(&scene.key(), Mode::Exclusive))
        .collect();
    scene.proxy.hold(Way::ToServer);
    let place_by = client.now() + Duration::from_secs(5);
    let asked = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = claims
        .into_iter()
        .map(|claim| tokio::spawn(told(store.clone().acquire(claim, place_by), asked.clone())))
        .collect();
    wait_until(|| asked.load(Ordering::Relaxed) >= callers.len());
    let renewal = Renewal {
        who: held.at.clone(),
        lease: held.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    };
    let renewed = store.clone().renew(Batch::from_iter([renewal]));
    let renewed = tokio::spawn(told(renewed, asked.clone()));
    wait_until(|| asked.load(Ordering::Relaxed) > callers.len());
    scene.proxy.heal();
    let answers = soon(join_all(callers)).await;
    assert!(
        answers
            .into_iter()
            .all(|answer| matches!(answer, Ok(Ok(Standing::Granted(_)))))
    );
    let renewed = soon(renewed).await.expect("no task fails");
    assert!(matches!(&renewed[..], [Renewed::Alive { .. }]), "{renewed:?}");
    stage.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    // The latest comes first. Only a renewal has these keys in this order.
    let calls = stage.text(&["SLOWLOG", "GET", "-1"]);
    let renewal = format!(
        " tenure_tokens tenure_claims:{} {} ",
        held.at.id.client(),
        held.at.key
    );
    let (_, before) = calls.split_once(&renewal).expect("it was called");
    let before = before.matches(" EVALSHA ").count();
    assert!(before <= 300, "{before} calls went before it");
}

/// None waits for the answers to those before it, however many travel together.
///
/// One thread runs them all: those who ask come before those who send, so that what is asked for is gathered.
#[tokio::test]
async fn what_is_asked_of_a_far_server_is_on_its_way_before_the_first_answer_comes() {
    let server = Server::start();
    let (proxy, store) = server.far(Duration::from_millis(5)).await;
    let stage = Stage::on(server).await;
    let client = stage.trial.client().await;
    let claims: Vec<_> = (0..300)
        .map(|_| client.claim(&stage.trial.key(), Mode::Exclusive))
        .collect();
    proxy.hold(Way::ToClient);
    let place_by = client.now() + Duration::from_secs(5);
    let calls = claims.iter().cloned();
    let calls: Vec<_> = calls
        .map(|claim| tokio::spawn(store.clone().acquire(claim, place_by)))
        .collect();
    let is_placed = |claim: &Arc<Claim>| stage.number(&["EXISTS", claim.at.key.as_str()]) == 1;
    soon(async {
        while !claims.iter().all(is_placed) {
            // sleep: nobody tells.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.heal();
    for answer in soon(join_all(calls)).await {
        assert!(matches!(answer, Ok(Ok(Standing::Granted(_)))), "{answer:?}");
    }
}
