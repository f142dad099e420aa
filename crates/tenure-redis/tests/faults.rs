//! What the server and the network do to their clients: pauses, restarts, lost connections, full memory, set clocks.
//! Long runs under faults, with histories, are the fault runs'.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use stage::{Server, Stage, USER, soon, wait_until};
use tenure_backend::{
    Backend, Batch, Cause, Claim, Departure, Effect, Fault, Grant, Holder, Loss, MAX_PLACE_AHEAD, Mode,
    Phase, Query, Released, Renewal, Renewed, Standing,
};
use tenure_redis::{Config, RedisStore};
use tenure_servers::{Data, Way};
use tenure_testkit::suite::Trial;

/// How soon a call must have failed whose server is silent: the limit, a quarter more, and what a busy machine takes.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_forgot_are_taught_again() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let forget = || stage.ask(&["SCRIPT", "FLUSH"]);
    let claim = client.claim(&key, Mode::Exclusive);
    forget();
    client.granted(&claim).await;
    forget();
    client.stays_alive(&claim, Phase::Granted).await;
    forget();
    assert!(client.status(&key).await.is_some());
    forget();
    client.release(&claim).await.freed_it(&claim);
    forget();
    let found = client
        .backend()
        .clone()
        .examine()
        .await
        .expect("it can be examined");
    assert!(
        found.iter().any(|finding| finding.what.contains("scripts")),
        "{found:?}"
    );
}

/// However often: it is sent what it forgot together with the call, so there is no moment in which it forgets again.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_scripts_all_the_time_serves_every_call() {
    let stage = Arc::new(Stage::new().await);
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let forgets = tokio::spawn({
        let stage = stage.clone();
        async move {
            loop {
                stage.ask(&["SCRIPT", "FLUSH"]);
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..100 {
        let claim = client.claim(&key, Mode::Exclusive);
        client.granted(&claim).await;
        client.stays_alive(&claim, Phase::Granted).await;
        assert!(client.status(&key).await.is_some());
        client.release(&claim).await.freed_it(&claim);
    }
    forgets.abort();
    let calls = stage.text(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_eval:"), "it forgot in between: {calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_cut_is_replaced_and_the_claim_is_still_there() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    for _ in 0..3 {
        stage.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        // It asks again in bad weather, as the engine does.
        client.stays_alive(&claim, Phase::Granted).await;
        assert_eq!(client.granted(&claim).await.tokens, grant.tokens);
    }
    client.release(&claim).await.freed_it(&claim);
}

/// R15: nobody is left asleep by a message that was lost with its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_was_cut_is_made_again_and_everybody_is_woken() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let (held, waiting) = (
        holder.claim(&key, Mode::Exclusive),
        waiter.claim(&key, Mode::Exclusive),
    );
    holder.granted(&held).await;
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    assert_eq!(
        soon(wakes.next()).await,
        Some(()),
        "whoever arms is woken: something may have been missed"
    );
    stage.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(
        soon(wakes.next()).await,
        Some(()),
        "so it is after another subscription"
    );
    holder.release(&held).await;
    assert_eq!(soon(wakes.next()).await, Some(()), "which hears");
    drop(wakes);
    let channel = format!("redisson_lock__channel:{{{key}}}");
    stage::wait_until(|| stage.text(&["PUBSUB", "NUMSUB", &channel]) == format!("{channel} 0"));
}

/// After a failover the server's name leads to another: whoever listens to the old one is not heard by those who release.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_follow_the_connection_for_calls_to_where_the_name_leads() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let waiting = client.claim(&key, Mode::Exclusive);
    let mut wakes = client.watch(&waiting).await.expect("it wakes");
    assert_eq!(soon(wakes.next()).await, Some(()), "whoever arms is woken");
    let listener = || stage.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let before = listener().split_whitespace().next().map(str::to_owned);
    stage.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    client.finds_free(&key, Mode::Exclusive).await;
    assert_eq!(
        soon(wakes.next()).await,
        Some(()),
        "something may have been missed"
    );
    // On another connection.
    wait_until(|| {
        let after = listener().split_whitespace().next().map(str::to_owned);
        after.is_some() && after != before
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_poll_while_a_lost_subscription_is_refused() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let held = holder.claim(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    assert_eq!(soon(wakes.next()).await, Some(()));
    stage.ask(&["ACL", "SETUSER", USER, "-subscribe"]);
    stage.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(soon(wakes.next()).await, Some(()));
    }
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(900)..Duration::from_secs(5)).contains(&took),
        "{took:?} for ten polls"
    );
    stage.ask(&["ACL", "SETUSER", USER, "+subscribe"]);
    let channel = format!("redisson_lock__channel:{{{key}}}");
    wait_until(|| stage.text(&["PUBSUB", "NUMSUB", &channel]) == format!("{channel} 1"));
    // Once restored it wakes nobody by itself.
    let quiet = async {
        let moment = Duration::from_millis(500);
        while tokio::time::timeout(moment, wakes.next()).await.is_ok() {}
    };
    soon(quiet).await;
    holder.release(&held).await;
    assert_eq!(soon(wakes.next()).await, Some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_is_given_up_in_time_and_found_again() {
    let server = Server::start();
    let config = Config {
        command_timeout: Duration::from_secs(1),
        ..server.config()
    };
    let store = RedisStore::connect(config).await.expect("the server answers");
    let redis = server.redis.clone();
    let trial = Trial::new(server).await;
    let (client, key) = (trial.client().await, trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    redis.lock().process().pause();
    let place_by = store.clock().now() + Duration::from_secs(2);
    let asked = std::time::Instant::now();
    let error = store
        .clone()
        .acquire(claim.clone(), place_by)
        .await
        .expect_err("it is silent");
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Unavailable, Effect::Unknown)
    );
    redis.lock().process().resume();
    // Whatever became of that call, giving the claim back ends it.
    client.withdraw(&claim).await;
    client.has_ended(&claim).await;
    client.finds_free(&key, Mode::Exclusive).await;
    let query = Query::Key(key);
    let page = store.inspect(query).await.expect("it is found again");
    assert_eq!(page.items, []);
}

/// R4: what a connection still carries that was given up comes too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_held_up_until_after_its_release_brings_nothing_back() {
    let server = Server::start();
    let (proxy, store) = server.behind_a_proxy(Duration::from_millis(400)).await;
    let stage = Stage::on(server).await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    proxy.hold(Way::ToServer);
    let place_by = store.clock().now() + MAX_PLACE_AHEAD;
    let error = store
        .clone()
        .acquire(claim.clone(), place_by)
        .await
        .expect_err("it is held up");
    assert_eq!(error.effect(), Effect::Unknown);
    client.withdraw(&claim).await;
    let before = stage.scripts_called();
    proxy.heal();
    wait_until(|| stage.scripts_called() > before);
    assert_eq!(stage.number(&["EXISTS", key.as_str()]), 0);
    client.has_ended(&claim).await;
    client.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_given_up_within_a_sixth_of_its_lease() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_secs(3)
    });
    client.granted(&claim).await;
    stage.redis.lock().process().pause();
    let asked = std::time::Instant::now();
    let batch = tenure_backend::Batch::from_iter([tenure_backend::Renewal {
        who: claim.at.clone(),
        lease: claim.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    }]);
    let answer = client.backend().clone().renew(batch).await.pop();
    let took = asked.elapsed();
    stage.redis.lock().process().resume();
    assert!(matches!(answer, Some(Renewed::Unknown(_))), "{answer:?}");
    assert!(
        (Duration::from_millis(500)..Duration::from_millis(1_500)).contains(&took),
        "{took:?}"
    );
    client.stays_alive(&claim, Phase::Granted).await;
}

/// R12: also the tokens outlive it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_its_data_keeps_locks_queues_and_tokens() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let (held, waiting) = (
        holder.fair(&key, Mode::Exclusive),
        waiter.fair(&key, Mode::Exclusive),
    );
    let grant = holder.granted(&held).await;
    waiter.waits(&waiting).await;
    stage.redis.lock().restart(Data::Kept).expect("it starts again");
    holder.stays_alive(&held, Phase::Granted).await;
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    let next = waiter.granted_soon(&waiting).await;
    assert!(next.tokens.expect("tokens").first() > grant.tokens.expect("tokens").last());
}

/// R9, R12: a server that comes back empty has lost its locks, and says so; its tokens rise by its clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_its_data_is_a_loss_that_is_told_and_tokens_rise() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    stage.redis.lock().restart(Data::Lost).expect("it starts again");
    let answer = client.renew(&claim).await;
    assert!(matches!(answer, Renewed::Gone(Loss::Missing)), "{answer:?}");
    let next = client.claim(&key, Mode::Exclusive);
    let next = client.granted(&next).await;
    assert!(next.tokens.expect("tokens").first() > grant.tokens.expect("tokens").last());
}

/// R22: a clock that is set forward ends leases early, which the profile says; one that is set back makes no token smaller.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let (client, key) = (stage.trial.client().await, stage.trial.key());
        let step = |ms| {
            stage
                .redis
                .lock()
                .clock()
                .expect("it steps")
                .step_ms(ms)
                .expect("it steps")
        };
        let mut greatest = None;
        let mut rises = |grant: &Grant| {
            let run = grant.tokens.expect("tokens");
            assert!(greatest < Some(run.first()), "{run:?} after {greatest:?}");
            greatest = Some(run.last());
        };
        let claim = client.claim(&key, Mode::Exclusive);
        rises(&client.granted(&claim).await);
        step(61_000);
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, Renewed::Gone(Loss::Expired)), "{answer:?}");
        let claim = client.claim(&key, Mode::Exclusive);
        rises(&client.granted(&claim).await);
        client.release(&claim).await;
        step(-3_600_000);
        // The bound on the server's clock is an hour too late, which makes nothing stricter; it is learnt anew.
        for _ in 0..2 {
            let [held, heir] = [(); 2].map(|()| client.claim(&key, Mode::Exclusive));
            let queued = client.fair(&key, Mode::Exclusive);
            rises(&client.granted(&held).await);
            client.waits(&queued).await;
            client.release(&held).await;
            rises(&client.granted_soon(&queued).await);
            let departed = client.hand_over(&queued, &heir).await;
            let Some(Standing::Granted(inherited)) = departed.heir else {
                panic!("nobody else waits: {departed:?}");
            };
            rises(&inherited);
            client.release(&heir).await;
        }
    }
}

/// What passes by itself: whoever waits goes on waiting, and a release is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_save_its_data_is_weather_without_effect() {
    let stage = Stage::new().await;
    let (client, [key, free]) = (stage.trial.client().await, [stage.trial.key(), stage.trial.key()]);
    let (held, late) = (
        client.claim(&key, Mode::Exclusive),
        client.claim(&free, Mode::Exclusive),
    );
    client.granted(&held).await;
    let gone = tempfile::tempdir().expect("a temporary directory can be made");
    stage.ask(&["CONFIG", "SET", "dir", &gone.path().display().to_string()]);
    gone.close().expect("it can be removed");
    stage.ask(&["CONFIG", "SET", "save", "3600 1000000"]);
    stage.ask(&["BGSAVE"]);
    stage::wait_until(|| stage.text(&["INFO", "persistence"]).contains("bgsave_status:err"));
    let place_by = client.now() + Duration::from_secs(5);
    let refusal = client.acquire_by(&late, place_by).await;
    let refusal = refusal.expect_err("it takes no writes");
    let renewal = Renewal {
        who: held.at.clone(),
        lease: held.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    };
    let renewed = client.backend().clone().renew(Batch::from_iter([renewal])).await;
    let departure = Departure {
        who: Holder::Claim(held.at.clone()),
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    };
    let released = client
        .backend()
        .clone()
        .release(Batch::from_iter([departure]))
        .await;
    let ([Renewed::Unknown(renewed)], [Released::Unknown(released)]) = (&renewed[..], &released[..]) else {
        panic!("{renewed:?} {released:?}");
    };
    for error in [&refusal, renewed, released] {
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Unavailable, Effect::None),
            "{error}"
        );
        assert!(error.to_string().contains("cannot save its data"), "{error}");
    }
    assert_eq!(
        stage.number(&["EXISTS", key.as_str(), free.as_str()]),
        1,
        "as before"
    );
    stage.ask(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    client.granted(&late).await;
    client.release(&held).await.freed_it(&held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_new_locks_without_effect_and_keeps_the_others_alive() {
    let stage = Stage::new().await;
    let ([holder, other], [key, free]) = (stage.trial.two().await, [stage.trial.key(), stage.trial.key()]);
    let held = holder.claim(&key, Mode::Exclusive);
    holder.granted(&held).await;
    stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let late = other.claim(&free, Mode::Exclusive);
    let place_by = other.now() + Duration::from_secs(5);
    let refusal = other.acquire_by(&late, place_by).await.expect_err("it is full");
    assert_eq!(
        (refusal.fault(), refusal.effect()),
        (Fault::Unavailable, Effect::None),
        "{refusal}"
    );
    assert_eq!(stage.number(&["EXISTS", free.as_str()]), 0);
    holder.stays_alive(&held, Phase::Granted).await;
    holder.release(&held).await.freed_it(&held);
    stage.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    other.granted(&late).await;
}

/// A waiter's place is written anew by its renewal, which a full memory refuses; a holder's lease is only made longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_refused_is_no_trouble_of_its_neighbours() {
    let stage = Stage::new().await;
    let ([holder, waiter], key) = (stage.trial.two().await, stage.trial.key());
    let (held, waiting) = (
        holder.fair(&key, Mode::Exclusive),
        waiter.fair(&key, Mode::Exclusive),
    );
    holder.granted(&held).await;
    waiter.waits(&waiting).await;
    stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let renewal = |claim: &Claim, only| Renewal {
        who: claim.at.clone(),
        lease: claim.lease,
        only,
        shorten_only: false,
        raise: None,
    };
    let batch = Batch::from_vec(vec![
        renewal(&waiting, Phase::Waiting),
        renewal(&held, Phase::Granted),
    ]);
    let answers = holder.backend().clone().renew(batch).await;
    assert!(matches!(answers[0], Renewed::Unknown(_)), "{answers:?}");
    assert!(matches!(answers[1], Renewed::Alive { .. }), "{answers:?}");
    stage.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    waiter.stays_alive(&waiting, Phase::Waiting).await;
}

/// After a planned switch the name leads to another server. Whoever only holds sends nothing but renewals.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_a_replica_is_left_by_renewals_too() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    client.granted(&claim).await;
    let connected = || {
        let said = stage.text(&["INFO", "stats"]);
        let count = said
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count
            .and_then(|count| count.trim().parse::<u64>().ok())
            .expect("it is said")
    };
    // Of a master that nobody can reach.
    stage.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let before = connected();
    for _ in 0..2 {
        let renewal = Renewal {
            who: claim.at.clone(),
            lease: claim.lease,
            only: Phase::Granted,
            shorten_only: false,
            raise: None,
        };
        let answers = client.backend().clone().renew(Batch::from_iter([renewal])).await;
        let is_weather = |answer: &Renewed| matches!(answer, Renewed::Unknown(error) if error.is_weather());
        assert!(answers.iter().all(is_weather), "{answers:?}");
    }
    assert!(connected() > before, "it looks where the name leads now");
    stage.ask(&["REPLICAOF", "NO", "ONE"]);
    client.stays_alive(&claim, Phase::Granted).await;
    client.release(&claim).await.freed_it(&claim);
}

/// A right to a key is looked at before the script begins, and refuses the whole call.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_without_a_right_to_its_key_is_no_trouble_of_its_neighbours() {
    let stage = Stage::new().await;
    let client = stage.trial.client().await;
    let claims: Vec<_> = (0..5)
        .map(|_| client.claim(&stage.trial.key(), Mode::Exclusive))
        .collect();
    for claim in &claims {
        client.granted(claim).await;
    }
    stage.ask(&["ACL", "SETUSER", USER, "resetkeys", "~tenure_*", "~redisson_*"]);
    for claim in claims.iter().filter(|claim| claim.at != claims[3].at) {
        stage.ask(&["ACL", "SETUSER", USER, &format!("~{}", claim.at.key)]);
    }
    let renewals = claims.iter().map(|claim| Renewal {
        who: claim.at.clone(),
        lease: claim.lease,
        only: Phase::Granted,
        shorten_only: false,
        raise: None,
    });
    let answers = client.backend().clone().renew(renewals.collect()).await;
    let is_denied =
        |answer: &Renewed| matches!(answer, Renewed::Unknown(error) if error.fault() == Fault::Denied);
    let is_alive = |answer: &Renewed| matches!(answer, Renewed::Alive { .. });
    assert_eq!(answers.len(), 5);
    for (at, answer) in answers.iter().enumerate() {
        assert!(
            if at == 3 {
                is_denied(answer)
            } else {
                is_alive(answer)
            },
            "{at}: {answer:?}"
        );
    }
    for (at, claim) in claims.iter().enumerate() {
        let record = format!("tenure_claim:{{{}}}:{}", claim.at.key, claim.at.id);
        assert_eq!(stage.number(&["EXISTS", &record]) == 1, at != 3, "{at}");
    }
}

/// R5: where nobody listens nothing was done, and it is certain.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable_without_effect() {
    let stage = Stage::new().await;
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let (claim, gone) = (
        client.claim(&key, Mode::Exclusive),
        client.claim(&key, Mode::Exclusive),
    );
    client.granted(&claim).await;
    stage.redis.lock().process().kill();
    let place_by = client.now() + Duration::from_secs(5);
    // The first may find out on the way.
    let _ = client.acquire_by(&gone, place_by).await;
    let error = client
        .acquire_by(&gone, place_by)
        .await
        .expect_err("nobody listens");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Unavailable, Effect::None),
        "{error}"
    );
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    let departure = tenure_backend::Departure {
        who: tenure_backend::Holder::Claim(claim.at.clone()),
        cause: tenure_backend::Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    };
    let batch = tenure_backend::Batch::from_iter([departure]);
    let answer = client.backend().clone().release(batch).await.pop();
    assert!(
        matches!(&answer, Some(Released::Unknown(error)) if error.is_weather()),
        "{answer:?}"
    );
    stage.redis.lock().restart(Data::Kept).expect("it starts again");
    assert!(matches!(client.acquire(&claim).await, Standing::Granted(_)));
}
