//! Faults of the server and the network: pauses, restarts, lost connections, full memory, set clocks.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, Backend, Effect, Fault, Grant, Loss, MAX_NOT_AFTER, Mode, Phase, Query, RenewReply,
    RenewRequest, Severity,
};
use tenure_redis::{Layout, RedisStore};
use tenure_servers::{Data, Way};

/// Time within which a call to a silent server must fail: the time-out of 1 s, up to 0.25 s until the client's next
/// check of the connection, and the rest for a busy machine.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn lost_scripts_are_loaded_again() {
    let (fixture, client, key) = Fixture::one().await;
    let forget = || fixture.command(&["SCRIPT", "FLUSH"]);
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
    assert_finding(&examine(client.backend()).await, "scripts", Severity::Warning);
}

/// If the server has lost a script, the client sends the source with the call, so the server cannot lose it again
/// before the script runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_losing_scripts_serves_every_call() {
    let fixture = Arc::new(Fixture::new().await);
    let (client, key) = (fixture.store.client().await, fixture.store.key());
    let forgets = tokio::spawn({
        let fixture = fixture.clone();
        async move {
            loop {
                fixture.command(&["SCRIPT", "FLUSH"]);
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..100 {
        let claim = hold(&client, &key).await;
        client.stays_alive(&claim, Phase::Granted).await;
        assert!(client.status(&key).await.is_some());
        client.release(&claim).await.freed_it(&claim);
    }
    forgets.abort();
    assert!(fixture.call_count("eval") > 0, "it forgot in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_is_replaced_and_the_claim_remains() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    for _ in 0..3 {
        fixture.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        // `stays_alive` retries after transient errors, like the engine.
        client.stays_alive(&claim, Phase::Granted).await;
        assert_eq!(client.granted(&claim).await.tokens, grant.tokens);
    }
    client.release(&claim).await.freed_it(&claim);
}

/// R15: a restored subscription wakes all waiters, because messages may have been lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_subscription_is_restored_and_wakes_all_waiters() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    // The first wake-up comes when the subscription starts, later ones with messages.
    wait_for_wake(&mut wakes).await;
    fixture.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    wait_for_wake(&mut wakes).await;
    holder.release(&held).await;
    wait_for_wake(&mut wakes).await;
    drop(wakes);
    wait_until(|| fixture.listeners(&key) == 0);
}

/// After a failover the host name may lead to another server. The old server then publishes no releases, so the client
/// must subscribe at the other one.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_follow_the_connection_to_another_server() {
    let (fixture, client, key) = Fixture::one().await;
    let waiting = client.claim(&key, Mode::Exclusive);
    let mut wakes = client.watch(&waiting).await.expect("it wakes");
    wait_for_wake(&mut wakes).await;
    let listener = || fixture.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let before = listener().split_whitespace().next().map(str::to_owned);
    fixture.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    client.finds_free(&key, Mode::Exclusive).await;
    // The client subscribes again, on another connection, and so wakes the waiter.
    wait_for_wake(&mut wakes).await;
    wait_until(|| {
        let after = listener().split_whitespace().next().map(str::to_owned);
        after.is_some() && after != before
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_poll_until_a_lost_subscription_is_restored() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    wait_for_wake(&mut wakes).await;
    fixture.command(&["ACL", "SETUSER", USER, "-subscribe"]);
    fixture.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        wait_for_wake(&mut wakes).await;
    }
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(900)..Duration::from_secs(5)).contains(&took),
        "{took:?} for ten polls"
    );
    fixture.command(&["ACL", "SETUSER", USER, "+subscribe"]);
    wait_until(|| fixture.listeners(&key) == 1);
    // Waits until the regular wake-ups cease: once the subscription is restored, only messages wake the waiter.
    let quiet = async {
        let moment = Duration::from_millis(500);
        while tokio::time::timeout(moment, wakes.next()).await.is_ok() {}
    };
    soon(quiet).await;
    holder.release(&held).await;
    wait_for_wake(&mut wakes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed_in_time_and_replaced() {
    let server = Server::start();
    let config = server.config().command_timeout(Duration::from_secs(1));
    let store = RedisStore::connect(config).await.expect("the server answers");
    let (fixture, client, key) = Fixture::one_on(server).await;
    let claim = client.claim(&key, Mode::Exclusive);
    fixture.redis.lock().process().pause();
    let asked = std::time::Instant::now();
    let error = acquire(&store, &claim).await.expect_err("it is silent");
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    assert_error(&error, (Fault::Unavailable, Effect::Unknown), "");
    fixture.redis.lock().process().resume();
    // The call may have had an effect. Withdrawing the claim ends it.
    client.withdraw(&claim).await;
    client.has_ended(&claim).await;
    client.finds_free(&key, Mode::Exclusive).await;
    let query = Query::Key(key);
    let page = store.inspect(query).await.expect("it is found again");
    assert_eq!(page.items, []);
}

/// R4: a request arrives after its claim was withdrawn, and places nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_delayed_past_its_release_places_nothing() {
    for layout in [Layout::Redisson, Layout::Plain] {
        let server = Server::of(layout);
        let (proxy, store) = server.behind_a_proxy(Duration::from_millis(400)).await;
        let (fixture, client, key) = Fixture::one_on(server).await;
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
        let before = fixture.script_calls();
        proxy.heal();
        wait_until(|| fixture.script_calls() > before);
        assert!(!fixture.exists(key.as_str()));
        client.has_ended(&claim).await;
        client.finds_free(&key, Mode::Exclusive).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_times_out_after_a_sixth_of_its_lease() {
    let (fixture, client, key) = Fixture::one().await;
    let lease = Duration::from_secs(12);
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.lease = lease);
    client.granted(&claim).await;
    fixture.redis.lock().process().pause();
    let asked = std::time::Instant::now();
    let answer = renew(client.backend(), RenewRequest::of(&claim)).await;
    let took = asked.elapsed();
    fixture.redis.lock().process().resume();
    assert!(matches!(answer, RenewReply::Unknown(_)), "{answer:?}");
    assert!((lease / 6..lease / 3).contains(&took), "{took:?}");
    client.stays_alive(&claim, Phase::Granted).await;
}

/// A server that answers earlier calls is only slow: a renewal that is sent again would add to its load. But a renewal
/// that waits for a third of the lease is given up, so that another one can come before the lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_waits_while_other_replies_arrive() {
    let server = Server::start();
    let (proxy, store) = server.behind_a_proxy(Duration::from_secs(30)).await;
    let (_fixture, client, key) = Fixture::one_on(server).await;
    let lease = Duration::from_secs(9);
    let claim = hold_for(&client, &key, lease).await;
    // The replies arrive later than a sixth of the lease after their calls, and later than a third.
    for (delay, is_renewed) in [(lease / 4, true), (lease / 2, false)] {
        proxy.delay(Way::ToClient, delay);
        let (asked, query) = (store.clone(), Query::Key(key.clone()));
        let others = tokio::spawn(async move {
            loop {
                tokio::spawn(asked.clone().inspect(query.clone()));
                // sleep: spreads the calls over the time of the test.
                tokio::time::sleep(lease / 100).await;
            }
        });
        // sleep: until the replies to the other calls arrive.
        tokio::time::sleep(delay).await;
        let asked = std::time::Instant::now();
        let answer = renew(&store, RenewRequest::of(&claim)).await;
        let took = asked.elapsed();
        others.abort();
        assert_eq!(
            matches!(answer, RenewReply::Alive { .. }),
            is_renewed,
            "{answer:?}"
        );
        assert!(took < lease * 5 / 12, "{took:?}");
        client.stays_alive(&claim, Phase::Granted).await;
    }
}

/// R12: not only locks and queues survive the restart, but also the token counter.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_data_keeps_locks_queues_and_tokens() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = holder.fair(&key, Mode::Exclusive);
    let grant = holder.granted(&held).await;
    let waiting = enqueue(&waiter, &key).await;
    fixture.redis.lock().restart(Data::Kept).expect("it starts again");
    holder.stays_alive(&held, Phase::Granted).await;
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    assert_tokens_rise(&grant, &waiter.granted_soon(&waiting).await);
}

/// R9, R12: after a restart without data, a renewal reports that its claim is missing. Tokens rise with the server's
/// clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_data_loses_locks_but_tokens_rise() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let grant = client.granted(&claim).await;
    fixture.redis.lock().restart(Data::Lost).expect("it starts again");
    let answer = client.renew(&claim).await;
    assert!(matches!(answer, RenewReply::Gone(Loss::Missing)), "{answer:?}");
    let next = client.claim(&key, Mode::Exclusive);
    assert_tokens_rise(&grant, &client.granted(&next).await);
}

/// R22: setting the clock forward ends leases early, as the profile says. Setting it back lowers no token.
#[tokio::test(flavor = "multi_thread")]
async fn setting_the_clock_ends_leases_but_repeats_no_token() {
    for server in [Server::start(), Server::batching()] {
        let (fixture, client, key) = Fixture::one_on(server).await;
        let claim = client.claim(&key, Mode::Exclusive);
        let mut last = client.granted(&claim).await;
        let mut follows = |grant: Grant| {
            assert_tokens_rise(&last, &grant);
            last = grant;
        };
        fixture.step_ms(61_000);
        let answer = client.renew(&claim).await;
        assert!(matches!(answer, RenewReply::Gone(Loss::Expired)), "{answer:?}");
        let claim = client.claim(&key, Mode::Exclusive);
        follows(client.granted(&claim).await);
        client.release(&claim).await;
        fixture.step_ms(-3_600_000);
        // The client's lower bound of the server's clock is an hour too high after this step. No claim is refused as
        // late because of that, and later replies correct the bound.
        for _ in 0..2 {
            let [held, successor] = [(); 2].map(|()| client.claim(&key, Mode::Exclusive));
            follows(client.granted(&held).await);
            let queued = enqueue(&client, &key).await;
            client.release(&held).await;
            follows(client.granted_soon(&queued).await);
            let departed = client.hand_over(&queued, &successor).await;
            let Some(AcquireReply::Granted(inherited)) = departed.successor else {
                panic!("no other claim waits: {departed:?}");
            };
            follows(inherited);
            client.release(&successor).await;
        }
    }
}

/// After a failed snapshot Redis refuses writes. The error is transient, so the engine keeps waiting for locks, and
/// retries releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_snapshot_is_a_transient_error_without_effect() {
    let (fixture, client, key) = Fixture::one().await;
    let held = hold(&client, &key).await;
    let late = client.claim(&fixture.store.key(), Mode::Exclusive);
    let gone = tempfile::tempdir().expect("a temporary directory can be made");
    fixture.command(&["CONFIG", "SET", "dir", &gone.path().display().to_string()]);
    gone.close().expect("it can be removed");
    fixture.command(&["CONFIG", "SET", "save", "3600 1000000"]);
    fixture.command(&["BGSAVE"]);
    wait_until(|| {
        fixture
            .text(&["INFO", "persistence"])
            .contains("bgsave_status:err")
    });
    let store = client.backend();
    let placed = acquire(store, &late).await.expect_err("it takes no writes");
    let released = release_error(store, unlock_of(&held)).await;
    let renewed = match renew(store, RenewRequest::of(&held)).await {
        RenewReply::Unknown(error) => error,
        other => panic!("{other:?}"),
    };
    for error in [placed, renewed, released] {
        assert_error(&error, (Fault::Unavailable, Effect::None), "cannot save its data");
    }
    let both = fixture.number(&["EXISTS", key.as_str(), late.at.key.as_str()]);
    assert_eq!(both, 1, "as before");
    fixture.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    client.granted(&late).await;
    client.release(&held).await.freed_it(&held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_new_locks_and_renews_held_ones() {
    let (fixture, [holder, other], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let late = other.claim(&fixture.store.key(), Mode::Exclusive);
    fixture.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refusal = acquire(other.backend(), &late).await.expect_err("it is full");
    assert_error(&refusal, (Fault::Unavailable, Effect::None), "");
    assert!(!fixture.exists(late.at.key.as_str()));
    holder.stays_alive(&held, Phase::Granted).await;
    holder.release(&held).await.freed_it(&held);
    fixture.command(&["CONFIG", "SET", "maxmemory", "0"]);
    other.granted(&late).await;
}

/// A server with full memory refuses a waiter's renewal, which must write data, but not a holder's, which needs only an
/// expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_renewal_does_not_affect_its_batch() {
    let (fixture, [holder, waiter], key) = Fixture::two().await;
    let held = hold(&holder, &key).await;
    let waiting = enqueue(&waiter, &key).await;
    fixture.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let waits = RenewRequest {
        only: Phase::Waiting,
        ..RenewRequest::of(&waiting)
    };
    let batch = [waits, RenewRequest::of(&held)].into_iter().collect();
    let answers = holder.backend().clone().renew(batch).await;
    let [RenewReply::Unknown(_), RenewReply::Alive { .. }] = &answers[..] else {
        panic!("{answers:?}");
    };
    fixture.command(&["CONFIG", "SET", "maxmemory", "0"]);
    waiter.stays_alive(&waiting, Phase::Waiting).await;
}

/// After a planned failover the host name leads to another server. A client that only renews held claims learns this
/// from a refused renewal, and must then reconnect.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_leaves_a_server_that_became_a_replica() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    let connected = || {
        let said = fixture.text(&["INFO", "stats"]);
        let count = said
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count
            .expect("the line exists")
            .trim()
            .parse::<u64>()
            .expect("a number")
    };
    // Makes the server a replica of a master that cannot be reached.
    fixture.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let before = connected();
    for _ in 0..2 {
        let answer = renew(client.backend(), RenewRequest::of(&claim)).await;
        assert!(
            matches!(&answer, RenewReply::Unknown(error) if error.is_transient()),
            "{answer:?}"
        );
    }
    assert!(connected() > before, "it looks where the name leads now");
    fixture.command(&["REPLICAOF", "NO", "ONE"]);
    client.stays_alive(&claim, Phase::Granted).await;
    client.release(&claim).await.freed_it(&claim);
}

/// Redis checks key permissions before it runs the script, and refuses the whole call. The client then renews each half
/// of the batch in a call of its own, and so on, until only the claim without permission is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_without_permission_does_not_affect_its_batch() {
    let fixture = Fixture::new().await;
    let client = fixture.store.client().await;
    let mut claims = Vec::new();
    for _ in 0..5 {
        claims.push(hold(&client, &fixture.store.key()).await);
    }
    let denied = claims[3].at.clone();
    fixture.permit_only(claims.iter().filter(|claim| claim.at != denied));
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
        assert_eq!(fixture.exists(&record(claim)), is_alive, "{:?}", claim.at);
    }
}

/// R5: if the connection is refused, the call certainly had no effect.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_unavailable_without_effect() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    let gone = client.claim(&key, Mode::Exclusive);
    fixture.redis.lock().process().kill();
    // The client may notice only by this call that the server is gone. The call's effect is then unknown, so its error
    // is not checked.
    let _ = acquire(client.backend(), &gone).await;
    let error = acquire(client.backend(), &gone)
        .await
        .expect_err("the port is closed");
    assert_error(&error, (Fault::Unavailable, Effect::None), "cannot be reached");
    let error = release_error(client.backend(), unlock_of(&claim)).await;
    assert!(error.is_transient(), "{error:?}");
    fixture.redis.lock().restart(Data::Kept).expect("it starts again");
    client.granted(&claim).await;
}
