//! What the server and the network do to their clients: pauses, restarts, lost connections, full memory, set clocks.
//! Long runs under faults, with histories, are the fault runs'.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use stage::*;
use tenure_backend::{
    AcquireReply, Backend, Effect, Fault, Grant, Loss, MAX_NOT_AFTER, Mode, Phase, Query, RenewReply,
    RenewRequest, Severity,
};
use tenure_redis::{Config, RedisStore};
use tenure_servers::{Data, Way};

/// How soon a call must have failed whose server is silent: the limit, a quarter more, and what a busy machine takes.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_the_server_forgot_are_taught_again() {
    let (stage, client, key) = Stage::one().await;
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
    finds(&examined(client.backend()).await, "scripts", Severity::Warning);
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
        let claim = holds(&client, &key).await;
        client.stays_alive(&claim, Phase::Granted).await;
        assert!(client.status(&key).await.is_some());
        client.release(&claim).await.freed_it(&claim);
    }
    forgets.abort();
    assert!(stage.calls_of("eval") > 0, "it forgot in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_cut_is_replaced_and_the_claim_is_still_there() {
    let (stage, client, key) = Stage::one().await;
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
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    // Whoever arms is woken, since something may have been missed: so it is after another subscription, which hears.
    wakes_up(&mut wakes).await;
    stage.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    wakes_up(&mut wakes).await;
    holder.release(&held).await;
    wakes_up(&mut wakes).await;
    drop(wakes);
    wait_until(|| stage.listeners(&key) == 0);
}

/// After a failover the server's name leads to another: whoever listens to the old one is not heard by those who release.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_follow_the_connection_for_calls_to_where_the_name_leads() {
    let (stage, client, key) = Stage::one().await;
    let waiting = client.claim(&key, Mode::Exclusive);
    let mut wakes = client.watch(&waiting).await.expect("it wakes");
    wakes_up(&mut wakes).await;
    let listener = || stage.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let before = listener().split_whitespace().next().map(str::to_owned);
    stage.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    client.finds_free(&key, Mode::Exclusive).await;
    // Something may have been missed. It is on another connection.
    wakes_up(&mut wakes).await;
    wait_until(|| {
        let after = listener().split_whitespace().next().map(str::to_owned);
        after.is_some() && after != before
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_poll_while_a_lost_subscription_is_refused() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    wakes_up(&mut wakes).await;
    stage.ask(&["ACL", "SETUSER", USER, "-subscribe"]);
    stage.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        wakes_up(&mut wakes).await;
    }
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(900)..Duration::from_secs(5)).contains(&took),
        "{took:?} for ten polls"
    );
    stage.ask(&["ACL", "SETUSER", USER, "+subscribe"]);
    wait_until(|| stage.listeners(&key) == 1);
    // Once restored it wakes nobody by itself.
    let quiet = async {
        let moment = Duration::from_millis(500);
        while tokio::time::timeout(moment, wakes.next()).await.is_ok() {}
    };
    soon(quiet).await;
    holder.release(&held).await;
    wakes_up(&mut wakes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_is_given_up_in_time_and_found_again() {
    let server = Server::start();
    let config = Config {
        command_timeout: Duration::from_secs(1),
        ..server.config()
    };
    let store = RedisStore::connect(config).await.expect("the server answers");
    let (stage, client, key) = Stage::one_on(server).await;
    let claim = client.claim(&key, Mode::Exclusive);
    stage.redis.lock().process().pause();
    let asked = std::time::Instant::now();
    let error = placed(&store, &claim).await.expect_err("it is silent");
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    is_error(&error, (Fault::Unavailable, Effect::Unknown), "");
    stage.redis.lock().process().resume();
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
    let (stage, client, key) = Stage::one_on(server).await;
    let claim = client.claim(&key, Mode::Exclusive);
    proxy.hold(Way::ToServer);
    let not_after = store.clock().now() + MAX_NOT_AFTER;
    let error = store
        .clone()
        .acquire(claim.clone(), not_after)
        .await
        .expect_err("it is held up");
    assert_eq!(error.effect(), Effect::Unknown);
    client.withdraw(&claim).await;
    let before = stage.scripts_called();
    proxy.heal();
    wait_until(|| stage.scripts_called() > before);
    assert!(!stage.exists(key.as_str()));
    client.has_ended(&claim).await;
    client.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_given_up_within_a_sixth_of_its_lease() {
    let (stage, client, key) = Stage::one().await;
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.lease = Duration::from_secs(3)
    });
    client.granted(&claim).await;
    stage.redis.lock().process().pause();
    let asked = std::time::Instant::now();
    let answer = renewed(client.backend(), RenewRequest::of(&claim)).await;
    let took = asked.elapsed();
    stage.redis.lock().process().resume();
    assert!(matches!(answer, RenewReply::Unknown(_)), "{answer:?}");
    assert!(
        (Duration::from_millis(500)..Duration::from_millis(1_500)).contains(&took),
        "{took:?}"
    );
    client.stays_alive(&claim, Phase::Granted).await;
}

/// R12: also the tokens outlive it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_its_data_keeps_locks_queues_and_tokens() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holder.fair(&key, Mode::Exclusive);
    let grant = holder.granted(&held).await;
    let waiting = queues(&waiter, &key).await;
    stage.redis.lock().restart(Data::Kept).expect("it starts again");
    holder.stays_alive(&held, Phase::Granted).await;
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    rises(&grant, &waiter.granted_soon(&waiting).await);
}

/// R9, R12: a server that comes back empty has lost its locks, and says so; its tokens rise by its clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_its_data_is_a_loss_that_is_told_and_tokens_rise() {
    let (stage, client, key) = Stage::one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    stage.redis.lock().restart(Data::Lost).expect("it starts again");
    let answer = client.renew(&claim).await;
    assert!(matches!(answer, RenewReply::Gone(Loss::Missing)), "{answer:?}");
    let next = client.claim(&key, Mode::Exclusive);
    rises(&grant, &client.granted(&next).await);
}

/// R22: a clock that is set forward ends leases early, which the profile says; one that is set back makes no token smaller.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_is_set_ends_leases_early_but_never_repeats_a_token() {
    for server in [Server::start(), Server::gathering()] {
        let (stage, client, key) = Stage::one_on(server).await;
        let claim = client.claim(&key, Mode::Exclusive);
        let mut last = client.granted(&claim).await;
        let mut follows = |grant: Grant| {
            rises(&last, &grant);
            last = grant;
        };
        stage.step_ms(61_000);
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, RenewReply::Gone(Loss::Expired)), "{answer:?}");
        let claim = client.claim(&key, Mode::Exclusive);
        follows(client.granted(&claim).await);
        client.release(&claim).await;
        stage.step_ms(-3_600_000);
        // The bound on the server's clock is an hour too late, which makes nothing stricter; it is learnt anew.
        for _ in 0..2 {
            let [held, successor] = [(); 2].map(|()| client.claim(&key, Mode::Exclusive));
            follows(client.granted(&held).await);
            let queued = queues(&client, &key).await;
            client.release(&held).await;
            follows(client.granted_soon(&queued).await);
            let departed = client.hand_over(&queued, &successor).await;
            let Some(AcquireReply::Granted(inherited)) = departed.successor else {
                panic!("nobody else waits: {departed:?}");
            };
            follows(inherited);
            client.release(&successor).await;
        }
    }
}

/// What passes by itself: whoever waits goes on waiting, and a release is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_save_its_data_is_weather_without_effect() {
    let (stage, client, key) = Stage::one().await;
    let held = holds(&client, &key).await;
    let late = client.claim(&stage.trial.key(), Mode::Exclusive);
    let gone = tempfile::tempdir().expect("a temporary directory can be made");
    stage.ask(&["CONFIG", "SET", "dir", &gone.path().display().to_string()]);
    gone.close().expect("it can be removed");
    stage.ask(&["CONFIG", "SET", "save", "3600 1000000"]);
    stage.ask(&["BGSAVE"]);
    wait_until(|| stage.text(&["INFO", "persistence"]).contains("bgsave_status:err"));
    let store = client.backend();
    let placed = placed(store, &late).await.expect_err("it takes no writes");
    let released = not_released(store, departure(&held)).await;
    let renewed = match renewed(store, RenewRequest::of(&held)).await {
        RenewReply::Unknown(error) => error,
        other => panic!("{other:?}"),
    };
    for error in [placed, renewed, released] {
        is_error(&error, (Fault::Unavailable, Effect::None), "cannot save its data");
    }
    let both = stage.number(&["EXISTS", key.as_str(), late.at.key.as_str()]);
    assert_eq!(both, 1, "as before");
    stage.ask(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    client.granted(&late).await;
    client.release(&held).await.freed_it(&held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_new_locks_without_effect_and_keeps_the_others_alive() {
    let (stage, [holder, other], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let late = other.claim(&stage.trial.key(), Mode::Exclusive);
    stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let refusal = placed(other.backend(), &late).await.expect_err("it is full");
    is_error(&refusal, (Fault::Unavailable, Effect::None), "");
    assert!(!stage.exists(late.at.key.as_str()));
    holder.stays_alive(&held, Phase::Granted).await;
    holder.release(&held).await.freed_it(&held);
    stage.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    other.granted(&late).await;
}

/// A waiter's place is written anew by its renewal, which a full memory refuses; a holder's lease is only made longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_refused_is_no_trouble_of_its_neighbours() {
    let (stage, [holder, waiter], key) = Stage::two().await;
    let held = holds(&holder, &key).await;
    let waiting = queues(&waiter, &key).await;
    stage.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let waits = RenewRequest {
        only: Phase::Waiting,
        ..RenewRequest::of(&waiting)
    };
    let batch = [waits, RenewRequest::of(&held)].into_iter().collect();
    let answers = holder.backend().clone().renew(batch).await;
    let [RenewReply::Unknown(_), RenewReply::Alive { .. }] = &answers[..] else {
        panic!("{answers:?}");
    };
    stage.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    waiter.stays_alive(&waiting, Phase::Waiting).await;
}

/// After a planned switch the name leads to another server. Whoever only holds sends nothing but renewals.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_a_replica_is_left_by_renewals_too() {
    let (stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    let connected = || {
        let said = stage.text(&["INFO", "stats"]);
        let count = said
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count
            .expect("it is said")
            .trim()
            .parse::<u64>()
            .expect("a number")
    };
    // Of a master that nobody can reach.
    stage.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let before = connected();
    for _ in 0..2 {
        let answer = renewed(client.backend(), RenewRequest::of(&claim)).await;
        assert!(
            matches!(&answer, RenewReply::Unknown(error) if error.is_transient()),
            "{answer:?}"
        );
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
    let mut claims = Vec::new();
    for _ in 0..5 {
        claims.push(holds(&client, &stage.trial.key()).await);
    }
    let denied = claims[3].at.clone();
    stage.allow_only(claims.iter().filter(|claim| claim.at != denied));
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim));
    let answers = client.backend().clone().renew(renewals.collect()).await;
    assert_eq!(answers.len(), 5);
    for (claim, answer) in claims.iter().zip(answers) {
        let is_alive = match answer {
            RenewReply::Alive { .. } => true,
            RenewReply::Unknown(error) if error.fault() == Fault::Denied => false,
            other => panic!("{other:?}"),
        };
        assert_eq!(is_alive, claim.at != denied, "{:?}", claim.at);
        assert_eq!(stage.exists(&record(claim)), is_alive, "{:?}", claim.at);
    }
}

/// R5: where nobody listens nothing was done, and it is certain.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable_without_effect() {
    let (stage, client, key) = Stage::one().await;
    let claim = holds(&client, &key).await;
    let gone = client.claim(&key, Mode::Exclusive);
    stage.redis.lock().process().kill();
    // The first may find out on the way.
    let _ = placed(client.backend(), &gone).await;
    let error = placed(client.backend(), &gone).await.expect_err("nobody listens");
    is_error(&error, (Fault::Unavailable, Effect::None), "cannot be reached");
    let error = not_released(client.backend(), departure(&claim)).await;
    assert!(error.is_transient(), "{error:?}");
    stage.redis.lock().restart(Data::Kept).expect("it starts again");
    client.granted(&claim).await;
}
