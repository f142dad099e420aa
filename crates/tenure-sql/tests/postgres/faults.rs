//! Faults of the server and the network: connections that end, lost replies, late requests, restarts, standbys that are
//! missing, and clocks that are set.
//! Length: each case sets up one fault of its own.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::postgres_fixture::*;
use futures_util::StreamExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tenure_backend::{
    AcquireReply, BackendError, Claim, ClientId, Effect, Fault, HolderId, Invalidation, LockKey, Loss,
    MAX_NOT_AFTER, Mode, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, Successor,
};
use tenure_servers::{Data, Postgres, Proxy, SteppedClock, Way};
use tenure_testkit::Subject;
use tenure_testkit::suite::{self, TestClient, run};
use tokio::time::timeout;

/// Ends the server's processes for the clients of this name. Returns once they have ended.
fn cut(case: &Case, name: &str) {
    let cut = format!(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    assert!(!case.ask(&cut).is_empty(), "{name} is connected");
}

/// Waits until a client of this name waits for this event of the server, and returns the ID of the server's process.
async fn waiting(case: &Case, name: &str, event: &str) -> i64 {
    let find = format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event = '{event}' LIMIT 1"
    );
    wait_until("it waits", || !case.ask(&find).is_empty()).await;
    case.number(&find)
}

/// Lets a client of this name release a claim, whose row another session has locked, and the server cancel the statement.
async fn cancel_release(case: &Case, name: &str, client: &TestClient, claim: &Claim) {
    let locking = case.locking(&claim.at.key).await;
    let store = client.backend().clone();
    let releasing = tokio::spawn({
        let request = unlock_of(claim);
        async move { release_error(&store, request).await }
    });
    let pid = waiting(case, name, "transactionid").await;
    case.ask(&format!("SELECT pg_cancel_backend({pid})"));
    let error = releasing.await.expect("no panic");
    assert_error(&error, (Fault::Unavailable, Effect::None), "cancelled");
    locking.batch_execute("ROLLBACK").await.expect("it obeys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_at_rest_is_replaced() {
    for layout in LAYOUTS {
        let name = format!("rest_{layout}");
        let case = Case::new(layout).await.with(&format!("application_name={name}"));
        let (client, key) = case.one().await;
        let store = client.backend();
        let mut changes = store
            .clone()
            .invalidations(ClientId::from_random([7; 16]))
            .expect("the store has them");
        // A new subscription reports the present connection.
        assert_eq!(soon(changes.next()).await, Some(Invalidation::All));
        let claim = client.claim(&key, Mode::Exclusive);
        let grant = client.granted(&claim).await;
        for _ in 0..3 {
            cut(&case, &name);
            // The client may not have noticed. Then the call fails, and the next one connects again.
            if let RenewReply::Unknown(error) = renew(store, &claim).await {
                assert_error(&error, (Fault::Unavailable, Effect::Unknown), "connection");
                assert_alive(&renew(store, &claim).await);
            }
            assert_eq!(soon(changes.next()).await, Some(Invalidation::All));
            assert_eq!(client.granted(&claim).await.tokens, grant.tokens);
        }
        client.release(&claim).await.freed_it(&claim);
    }
}

/// The statement waits for a row. The server undoes it, but says nothing that proves so.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_connection_ends_has_an_unknown_effect() {
    let case = Case::new("version").await.with("application_name=ended");
    let ([client, other], key) = case.two().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    let locking = case.locking(&key).await;
    let store = client.backend().clone();
    let releasing = tokio::spawn({
        let request = unlock_of(&held);
        async move { release_error(&store, request).await }
    });
    waiting(&case, "ended", "transactionid").await;
    cut(&case, "ended");
    let error = releasing.await.expect("no panic");
    assert_error(&error, (Fault::Unavailable, Effect::Unknown), "connection");
    locking.batch_execute("ROLLBACK").await.expect("it obeys");
    client.stays_alive(&held, Phase::Granted).await;
    other.finds_busy(&key, Mode::Exclusive).await;
    client.release(&held).await.freed_it(&held);
}

/// Another session, or a role's `statement_timeout`, cancels the statement: it may be repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_statement_is_a_transient_error_without_effect() {
    let case = Case::new("version").await.with("application_name=cancelled");
    let (client, key) = case.one().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    cancel_release(&case, "cancelled", &client, &held).await;
    client.release(&held).await.freed_it(&held);
}

/// The first request of the claim was given up, so a release has to be repeated once that request can no longer arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_refused_without_effect_releases_nothing_later() {
    let case = Case::on(start(&[]), "version")
        .await
        .with("command_timeout=2s&application_name=kept");
    let (client, key) = case.one().await;
    let store = client.backend().clone();
    let claim = client.claim(&key, Mode::Exclusive);
    case.server.lock().process().pause();
    let not_after = store.clock().now() + Duration::from_secs(3);
    let unanswered = store.clone().acquire(claim.clone(), not_after).await;
    let unanswered = unanswered.expect_err("it is silent");
    assert_error(&unanswered, (Fault::Unavailable, Effect::Unknown), "within 2s");
    case.server.lock().process().resume();
    client.granted(&claim).await;
    cancel_release(&case, "kept", &client, &claim).await;
    // sleep: the time limits of the first request and of a statement, after which releases are repeated.
    tokio::time::sleep(Duration::from_secs(6)).await;
    client.stays_alive(&claim, Phase::Granted).await;
    client.release(&claim).await.freed_it(&claim);
}

/// A statement that may wait for a row has no effect in the last 20 ms before its time limit. A client that is held up until
/// then is late: it does not wait for a key that is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_with_little_time_left_is_late() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (client, key) = case.one().await;
        // The connection is made before, so that the request arrives in time.
        client.finds_free(&key, Mode::Exclusive).await;
        case.script(&format!("DELETE FROM {}", case.table())).await;
        for left in [1, 10, 19] {
            let claim = client.claim(&key, Mode::Exclusive);
            let not_after = client.now() + Duration::from_millis(left);
            let reply = client.acquire_by(&claim, not_after).await;
            assert!(
                matches!(reply, Ok(AcquireReply::TooLate)),
                "{layout}, {left} ms: {reply:?}"
            );
            assert!(client.now() >= not_after, "{layout}, {left} ms");
        }
    }
}

/// The row was released, and then the connection ended while the next claim took it.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_says_nothing_of_a_successor_that_was_not_answered() {
    let case = Case::new("version").await.with("application_name=succession");
    let (client, key) = case.one().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    let next = client.claim(&key, Mode::Exclusive);
    let (schema, table) = (case.schema.clone(), case.table());
    let delay = format!(
        "CREATE FUNCTION {schema}.delay() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
         CREATE TRIGGER delay BEFORE UPDATE ON {table} FOR EACH ROW WHEN (NEW.locked AND NOT OLD.locked)
             EXECUTE FUNCTION {schema}.delay()"
    );
    case.script(&delay).await;
    let store = client.backend().clone();
    let releasing = tokio::spawn({
        let successor = Successor {
            claim: next.clone(),
            not_after: store.clock().now() + Duration::from_secs(5),
        };
        let request = ReleaseRequest {
            successor: Some(successor),
            ..unlock_of(&held)
        };
        async move { release(&store, request).await }
    });
    waiting(&case, "succession", "PgSleep").await;
    cut(&case, "succession");
    match releasing.await.expect("no panic") {
        ReleaseReply::Done {
            freed,
            successor: None,
            ..
        } => assert_eq!(freed[..], [HolderId::Claim(held.at.id)]),
        other => panic!("{other:?}"),
    }
    client.withdraw(&next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_fails_calls_and_keeps_locks() {
    let case = Case::on(start(&[]), "version")
        .await
        .with("command_timeout=500ms");
    let (client, key) = case.one().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    let late = client.claim(&LockKey::new("late").expect("a key"), Mode::Exclusive);
    case.server.lock().process().pause();
    let acquired = acquire(client.backend(), &late).await.expect_err("it is silent");
    assert_error(&acquired, (Fault::Unavailable, Effect::Unknown), "within 500ms");
    case.server.lock().process().resume();
    client.stays_alive(&held, Phase::Granted).await;
    // The call may have had an effect. Withdrawing the claim ends it.
    client.withdraw(&late).await;
    client.has_ended(&late).await;
    client.finds_free(&late.at.key, Mode::Exclusive).await;
    client.release(&held).await.freed_it(&held);
}

/// A client behind a proxy, and one that is not, with a key.
async fn behind_a_proxy(case: &Case) -> (Proxy, TestClient, TestClient, LockKey) {
    let proxy = Proxy::start(case.address()).await.expect("a port is free");
    let far = case.clone().at(proxy.address());
    let far = far.fixture().await.client().await;
    let (near, key) = case.one().await;
    (proxy, far, near, key)
}

/// R25: the reply to an acquire is lost. Repeating it counts once, and gives the same tokens.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_acquire_returns_the_same_tokens() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (proxy, far, near, key) = behind_a_proxy(&case).await;
        let claim = far.claim_as(&key, Mode::Exclusive, |claim| {
            claim.grants = NonZeroU32::new(5).expect("not zero");
        });
        for _ in 0..2 {
            proxy.cut_after(Way::ToClient, 0);
            let error = acquire(far.backend(), &claim)
                .await
                .expect_err("the reply is lost");
            assert_error(&error, (Fault::Unavailable, Effect::Unknown), "connection broke");
            // Opens the next connection.
            assert!(far.status(&key).await.is_some());
        }
        let grant = far.granted(&claim).await;
        if layout == "version" {
            let tokens = grant.tokens.expect("tokens");
            assert_eq!(tokens.count().get(), 5);
            let version = case.row("version", &key);
            assert_eq!(version, tokens.last().to_string(), "reserved once");
        }
        assert_eq!(far.granted(&claim).await.tokens, grant.tokens);
        near.finds_busy(&key, Mode::Exclusive).await;
        far.release(&claim).await.freed_it(&claim);
        near.finds_free(&key, Mode::Exclusive).await;
    }
}

/// R13: the reply to an acquire is lost, and the lease has ended before the claim is polled.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_expired_unnoticed_is_not_granted_again() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (proxy, far, _, key) = behind_a_proxy(&case).await;
        let claim = far.claim(&key, Mode::Exclusive);
        proxy.cut_after(Way::ToClient, 0);
        acquire(far.backend(), &claim)
            .await
            .expect_err("the reply is lost");
        case.pass(claim.lease + Duration::from_millis(10)).await;
        // Opens the next connection.
        assert_eq!(far.status(&key).await, None);
        let answer = acquire(far.backend(), &claim).await;
        assert!(matches!(answer, Ok(AcquireReply::Ended)), "{layout}: {answer:?}");
    }
}

/// R6: the reply to a renewal, a release or an eviction is lost.
#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_reply_is_lost_may_be_repeated() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (proxy, far, near, key) = behind_a_proxy(&case).await;
        let store = far.backend();
        let held = far.holds(&key, Mode::Exclusive).await;
        let is_lost = |error: BackendError| {
            assert_error(&error, (Fault::Unavailable, Effect::Unknown), "connection broke");
        };
        proxy.cut_after(Way::ToClient, 0);
        is_lost(renewal_error(store, &held).await);
        assert_alive(&renew(store, &held).await);

        proxy.cut_after(Way::ToClient, 0);
        is_lost(release_error(store, unlock_of(&held)).await);
        near.finds_free(&key, Mode::Exclusive).await;
        far.release(&held).await.freed_nothing();
        far.has_ended(&held).await;

        let target = near.holds(&key, Mode::Exclusive).await;
        // The first reply of an eviction names the holder, the second confirms that the holder is gone.
        let evict = || {
            let request = ReleaseRequest {
                cooldown: Duration::ZERO,
                ..eviction_of(ReleaseTarget::All(key.clone()), Duration::ZERO)
            };
            release(store, request)
        };
        proxy.cut_after(Way::ToClient, 0);
        let lost = evict().await;
        assert!(matches!(lost, ReleaseReply::Unknown(_)), "{lost:?}");
        let done = evict().await;
        assert!(matches!(done, ReleaseReply::Done { .. }), "{done:?}");
        near.is_gone(&target, Phase::Granted).await;
        far.finds_free(&key, Mode::Exclusive).await;
    }
}

/// Delays what the client sends, until the connection has been given up. Returns the server's process for it.
async fn acquire_that_arrives_after(
    (case, name): (&Case, &str),
    (proxy, far): (&Proxy, &TestClient),
    claim: &Arc<Claim>,
    (delay, not_after): (Duration, Duration),
) -> i64 {
    let pid = case.number(&format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'"
    ));
    proxy.delay(Way::ToServer, delay);
    let not_after = far.now() + not_after;
    let error = far.acquire_by(claim, not_after).await.expect_err("it is held up");
    assert_error(&error, (Fault::Unavailable, Effect::Unknown), "within 500ms");
    proxy.delay(Way::ToServer, Duration::ZERO);
    pid
}

/// A client behind a proxy with one connection, whose name at the server is that of the layout and the test.
async fn far_client(layout: &'static str, test: &str) -> (Case, String, Proxy, TestClient, LockKey) {
    let name = format!("{test}_{layout}");
    let case = Case::new(layout).await;
    let proxy = Proxy::start(case.address()).await.expect("a port is free");
    let far = case.clone().at(proxy.address()).with("command_timeout=500ms");
    let fixture = far.with(&format!("application_name={name}")).fixture().await;
    let far = fixture.client().await;
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    wait_until("the fixture's own connection is closed", || {
        case.number(&count) == 1
    })
    .await;
    (case, name, proxy, far, fixture.key())
}

/// Polls a key until it is free.
async fn becomes_free(client: &TestClient, key: &LockKey) {
    let claim = client.claim(key, Mode::Exclusive);
    let granted = async {
        while !matches!(client.acquire(&claim).await, AcquireReply::Granted(_)) {
            // sleep: these layouts have no wake-ups, so a waiter polls.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(granted).await;
}

/// R1, R2: the request is late, so its claim is placed after the release. The client releases it again at `not_after`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_placed_after_its_release_is_released_again() {
    let works = LAYOUTS.map(async |layout| {
        let (case, name, proxy, far, key) = far_client(layout, "again").await;
        let claim = far.claim(&key, Mode::Exclusive);
        let times = (Duration::from_secs(3), MAX_NOT_AFTER);
        acquire_that_arrives_after((&case, &name), (&proxy, &far), &claim, times).await;
        far.withdraw(&claim).await.freed_nothing();
        let (near, _) = case.one().await;
        wait_until("the late request has taken the row", || {
            let held = case.row("1", &key);
            !held.is_empty()
        })
        .await;
        near.finds_busy(&key, Mode::Exclusive).await;
        far.has_ended(&claim).await;
        // Its lease ends much later.
        becomes_free(&near, &key).await;
    });
    join_all(works).await;
}

/// R4: the request arrives after its `not_after`, when its claim has long been released, and places nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_arrives_too_late_places_nothing() {
    let works = LAYOUTS.map(async |layout| {
        let (case, name, proxy, far, key) = far_client(layout, "late").await;
        let claim = far.claim(&key, Mode::Exclusive);
        let times = (Duration::from_secs(3), Duration::from_secs(1));
        let pid = acquire_that_arrives_after((&case, &name), (&proxy, &far), &claim, times).await;
        far.withdraw(&claim).await.freed_nothing();
        let ended = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        assert_eq!(case.number(&ended), 1, "the request is still under way");
        wait_until("the server has served the late request", || {
            case.number(&ended) == 0
        })
        .await;
        assert_eq!(case.row("1", &key), "", "{layout}");
        let (near, _) = case.one().await;
        near.finds_free(&key, Mode::Exclusive).await;
    });
    join_all(works).await;
}

/// R4, R7: a renewal that arrives after its claim's release brings no claim back.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_arrives_after_the_release_has_no_effect() {
    let works = LAYOUTS.map(async |layout| {
        let (case, name, proxy, far, key) = far_client(layout, "renewal").await;
        let held = far.holds(&key, Mode::Exclusive).await;
        let pid = case.number(&format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'"
        ));
        proxy.delay(Way::ToServer, Duration::from_secs(2));
        let error = renewal_error(far.backend(), &held).await;
        assert_error(&error, (Fault::Unavailable, Effect::Unknown), "within 500ms");
        proxy.delay(Way::ToServer, Duration::ZERO);
        far.release(&held).await.freed_it(&held);
        let (near, _) = case.one().await;
        let next = near.holds(&key, Mode::Exclusive).await;
        let row = case.row("*", &key);
        let ended = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        wait_until("the server has served the late renewal", || {
            case.number(&ended) == 0
        })
        .await;
        assert_eq!(case.row("*", &key), row, "{layout}");
        near.release(&next).await.freed_it(&next);
    });
    join_all(works).await;
}

/// The release of a claim whose lease has ended frees the row for clients that know no leases, but the claim held
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_an_expired_claim_frees_nothing() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let fixture = case.fixture().await;
        let (client, key) = (fixture.client().await, fixture.key());
        let claim = client.short_lease(&key, Mode::Exclusive);
        let grant = client.granted(&claim).await;
        fixture.pass(grant.lease + fixture.grace()).await;
        client.release(&claim).await.freed_nothing();
        match layout {
            "unique" => assert_eq!(case.row("1", &key), ""),
            "version" => assert_eq!(case.row("locked, lock_holder, expire_time", &key), "f||"),
            _ => {}
        }
        client.finds_free(&key, Mode::Exclusive).await;
    }
}

mod restart {
    use super::*;

    macro_rules! cases {
        ($($layout:ident)+) => {
            $(
                mod $layout {
                    use super::*;

                    async fn alone() -> impl Subject {
                        Case::alone(stringify!($layout)).await
                    }

                    #[test]
                    fn a_claim_survives_a_restart() {
                        run(alone, suite::lease::a_claim_survives_a_restart_if_the_profile_says_so);
                    }

                    #[test]
                    fn tokens_rise_over_a_restart() {
                        run(alone, suite::fence::tokens_rise_over_a_restart);
                    }
                }
            )+
        };
    }

    cases!(unique version shedlock);
}

/// R9: the server is killed, and starts again with its log. The client's next calls find their locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_keeps_locks_and_tokens() {
    for layout in LAYOUTS {
        let case = Case::alone(layout).await;
        let ([holder, other], key) = case.two().await;
        let held = holder.claim(&key, Mode::Exclusive);
        let grant = holder.granted(&held).await;
        case.restart()
            .expect("it restarts")
            .await
            .expect("it starts again");
        holder.stays_alive(&held, Phase::Granted).await;
        other.finds_busy(&key, Mode::Exclusive).await;
        assert_eq!(holder.granted(&held).await.tokens, grant.tokens);
        holder.release(&held).await.freed_it(&held);
        let next = other.claim(&key, Mode::Exclusive);
        let after = other.granted(&next).await;
        if layout == "version" {
            assert_tokens_rise(&grant, &after);
        }
    }
}

/// The server loses the end of its log when it is killed, because it writes commits later. Grants, renewals and evictions
/// are written at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_durable_on_a_server_that_commits_later() {
    let server = start(&["synchronous_commit = off", "wal_writer_delay = 10s"]);
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let ([holder, other], key) = case.two().await;
        let held = holder.holds(&key, Mode::Exclusive).await;
        let restart = || {
            let restarted = case.server.lock().restart(Data::Kept);
            restarted.expect("the server starts again");
        };
        let survives = || {
            let before = case.row("*", &key);
            restart();
            assert_eq!(case.row("*", &key), before, "{layout}");
        };
        survives();
        holder.stays_alive(&held, Phase::Granted).await;
        survives();
        other.evict(&held, "alice").await.freed_it(&held);
        restart();
        holder.is_gone(&held, Phase::Granted).await;
    }
}

/// A server whose synchronous standby is missing: a durable commit waits for ever.
fn server_without_its_standby() -> Arc<Mutex<Postgres>> {
    // The tests' other sessions do not wait.
    start(&[
        "synchronous_standby_names = 'missing'",
        "synchronous_commit = local",
    ])
}

/// The case for clients that wait for the standby, for this time.
fn patient(case: &Case, limit: &str) -> Case {
    let patient = case.clone().with(&format!("command_timeout={limit}"));
    patient.with("application_name=patient&options=-c%20synchronous_commit%3Don")
}

/// A cancelled commit reports success with a warning: the row is on this server, and gone after a failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_commit_was_cancelled_does_not_count() {
    let server = server_without_its_standby();
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let patient = patient(&case, "20s").open().await;
        let (client, key) = case.one().await;
        let claim = client.claim(&key, Mode::Exclusive);
        let cancelled = async || {
            let pid = waiting(&case, "patient", "SyncRep").await;
            case.ask(&format!("SELECT pg_cancel_backend({pid})"));
        };
        let (reply, ()) = tokio::join!(acquire(&patient, &claim), cancelled());
        let error = reply.expect_err("it does not count");
        assert_error(
            &error,
            (Fault::Unavailable, Effect::Unknown),
            "may not be on the standbys",
        );
        // The claim is in the row, so a later poll with a commit that is not cancelled finds it.
        let grant = client.granted(&claim).await;
        let (reply, ()) = tokio::join!(renew(&patient, &claim), cancelled());
        let RenewReply::Unknown(error) = reply else {
            panic!("{reply:?}");
        };
        assert_error(
            &error,
            (Fault::Unavailable, Effect::Unknown),
            "may not be on the standbys",
        );
        let (reply, ()) = tokio::join!(acquire(&patient, &claim), cancelled());
        let error = reply.expect_err("the renewal by a poll does not count either");
        assert_error(
            &error,
            (Fault::Unavailable, Effect::Unknown),
            "may not be on the standbys",
        );
        assert_eq!(client.granted(&claim).await.tokens, grant.tokens);
        // The server's shutdown, or an administrator, ends the session.
        let ended = async {
            let pid = waiting(&case, "patient", "SyncRep").await;
            case.ask(&format!("SELECT pg_terminate_backend({pid}, 30000)"));
        };
        let (reply, ()) = tokio::join!(renew(&patient, &claim), ended);
        let RenewReply::Unknown(error) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Unavailable, Effect::Unknown)
        );
        client.stays_alive(&claim, Phase::Granted).await;
        client.release(&claim).await.freed_it(&claim);
    }
}

/// The client gives up a commit that waits: it closes the connection, and does not cancel the statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_given_up_grants_nothing() {
    let case = Case::on(server_without_its_standby(), "version").await;
    let patient = patient(&case, "500ms").open().await;
    let (client, key) = case.one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let error = acquire(&patient, &claim).await.expect_err("it waits");
    assert_error(&error, (Fault::Unavailable, Effect::Unknown), "within 500ms");
    assert_eq!(case.row("1", &key), "", "the commit still waits");
    waiting(&case, "patient", "SyncRep").await;
}

/// The take is written before its limit, and becomes visible after the release that follows the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_ends_after_the_release_is_released() {
    let server = server_without_its_standby();
    let acquires = LAYOUTS.map(async |layout| {
        let case = Case::on(server.clone(), layout).await;
        let patient = patient(&case, "5s").open().await;
        let (client, key) = case.one().await;
        let claim = client.claim(&key, Mode::Exclusive);
        let not_after = patient.clock().now() + Duration::from_secs(1);
        let lost = patient.clone().acquire(claim.clone(), not_after).await;
        let error = lost.expect_err("it waits for the standby");
        assert_error(&error, (Fault::Unavailable, Effect::Unknown), "within 5s");
        let released = release(&patient, unlock_of(&claim)).await;
        assert!(
            matches!(&released, ReleaseReply::Done { freed, .. } if freed.is_empty()),
            "{released:?}"
        );
        (case, patient, client, key)
    });
    let given_up = join_all(acquires).await;
    script(&server, "ALTER SYSTEM SET synchronous_standby_names = ''").await;
    script(&server, "SELECT pg_reload_conf()").await;
    for (case, _, _, key) in &given_up {
        wait_until("the commit has ended", || case.row("1", key) == "1").await;
    }
    // Their leases end much later.
    for (_, _store, client, key) in given_up {
        becomes_free(&client, &key).await;
    }
}

/// A server warns of many things, some of them at each login or statement, which say nothing about the lock.
#[tokio::test(flavor = "multi_thread")]
async fn other_warnings_do_not_affect_a_lock() {
    let server = start(&[]);
    // Each login warns that the collation's version has changed.
    script(
        &server,
        "UPDATE pg_database SET datcollversion = '1' WHERE datname = 'postgres'",
    )
    .await;
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        case.script(&format!(
            "CREATE FUNCTION {schema}.warns() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE WARNING 'this row has changed'; RETURN NULL; END $$;
             CREATE TRIGGER warns AFTER INSERT OR UPDATE OR DELETE ON {table}
                 FOR EACH ROW EXECUTE FUNCTION {schema}.warns()",
            schema = case.schema,
            table = case.table()
        ))
        .await;
        let store = case.open().await;
        let (client, key) = case.one().await;
        let claim = client.claim(&key, Mode::Exclusive);
        let granted = acquire(&store, &claim).await;
        assert!(matches!(granted, Ok(AcquireReply::Granted(_))), "{granted:?}");
        assert_alive(&renew(&store, &claim).await);
        let released = release(&store, unlock_of(&claim)).await;
        assert!(matches!(released, ReleaseReply::Done { .. }), "{released:?}");
    }
}

/// By the server's clock, the lease of such a renewal ends before the time at which the row was taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_renewed_after_the_clock_was_set_back_ends() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let ([client, other], key) = case.two().await;
        let held = client.holds(&key, Mode::Exclusive).await;
        case.script(&format!("UPDATE {}.step SET us = us - 3600000000", case.schema))
            .await;
        assert_alive(&renew(client.backend(), &held).await);
        other.finds_busy(&key, Mode::Exclusive).await;
        case.pass(held.lease + Duration::from_secs(1)).await;
        other.finds_free(&key, Mode::Exclusive).await;
    }
}

/// R22: setting the clock forward ends leases early, as the profile says. Setting it back lowers no token.
#[tokio::test(flavor = "multi_thread")]
async fn setting_the_clock_ends_leases_but_repeats_no_token() {
    let clock = SteppedClock::new().expect("a clock that steps can be made");
    let server = Postgres::start_with(&[], &[], Some(clock)).expect("PostgreSQL starts");
    server
        .ask(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"))
        .expect("it obeys");
    let server = Arc::new(Mutex::new(server));
    let step = |milliseconds| {
        let server = server.lock();
        let clock = server.clock().expect("it steps");
        clock.step_ms(milliseconds).expect("the clock steps");
    };
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let (client, key) = case.one().await;
        let claim = client.claim(&key, Mode::Exclusive);
        let mut last = client.granted(&claim).await;
        let mut follows = |grant| {
            if layout == "version" {
                assert_tokens_rise(&last, &grant);
            }
            last = grant;
        };
        step(61_000);
        let loss = client.is_gone(&claim, Phase::Granted).await;
        assert_eq!(loss, Loss::Expired);
        let claim = client.claim(&key, Mode::Exclusive);
        follows(client.granted(&claim).await);
        client.release(&claim).await;
        step(-3_600_000);
        if layout == "shedlock" {
            // A row of ShedLock is free from a time on, here that of the release, so the clock has closed it.
            client.finds_busy(&key, Mode::Exclusive).await;
        } else {
            // The client's lower bound of the server's clock is an hour too high after this step. No claim is refused as
            // late because of that, and later replies correct the bound.
            for _ in 0..2 {
                let claim = client.claim(&key, Mode::Exclusive);
                follows(client.granted(&claim).await);
                client.stays_alive(&claim, Phase::Granted).await;
                client.release(&claim).await.freed_it(&claim);
            }
        }
        step(3_600_000 - 61_000);
    }
}

/// R12: tokens do not fall after an administrator has deleted the row.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_after_the_row_was_deleted() {
    let case = Case::new("version").await;
    let (client, key) = case.one().await;
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
        claim.grants = NonZeroU32::new(1_000).expect("not zero");
    });
    let before = client.granted(&claim).await;
    case.ask(&format!("DELETE FROM {}", case.table()));
    assert_eq!(client.is_gone(&claim, Phase::Granted).await, Loss::Missing);
    let next = client.claim(&key, Mode::Exclusive);
    assert_tokens_rise(&before, &client.granted(&next).await);
}

/// A process of the server that is stopped, until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: i64) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let stopped = Stopped(pid.expect("the ID of a process"));
        kill_process(stopped.0, Signal::STOP).expect("it runs");
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// One session at a time adds pages to a table. If the system pauses it meanwhile, the others wait, and give up after the
/// time that they would wait for a row.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_key_is_granted_after_a_wait_for_the_tables_growth() {
    for layout in ["unique", "version"] {
        let case = Case::on(start(&[]), layout).await;
        let fixture = case.fixture().await;
        let (table, columns) = (case.table(), case.key_column());
        let wide =
            format!("ALTER TABLE {table} ADD wide text; ALTER TABLE {table} ALTER wide SET STORAGE PLAIN");
        case.script(&wide).await;
        let (columns, values) = match layout {
            "unique" => (format!("{columns}, lock_value, expire_time"), "n, '', now()"),
            _ => (columns.to_owned(), "n"),
        };
        // Each row fills a page.
        let fill = format!(
            "INSERT INTO {table} ({columns}, wide) SELECT {values}, repeat('x', 8000) FROM generate_series(1, 50000) n"
        );
        let filling = admin(&case.server).await;
        let pid = filling
            .query_one("SELECT pg_backend_pid()", &[])
            .await
            .expect("it obeys");
        let pid = i64::from(pid.get::<_, i32>(0));
        let filling = tokio::spawn(async move { filling.batch_execute(&fill).await });
        let looking = admin(&case.server).await;
        let growing = |which: &str| {
            format!(
                "SELECT waitstart::text FROM pg_locks WHERE locktype = 'extend' AND relation = '{table}'::regclass AND {which}"
            )
        };
        let (grows, waits) = (
            growing(&format!("granted AND pid = {pid}")),
            growing("NOT granted"),
        );
        // The texts that a query finds; `None` if the query waits, too.
        let found = async |query: &str| {
            let rows = timeout(Duration::from_secs(1), looking.query(query, &[]));
            let rows = rows.await.ok()?.expect("the server obeys");
            let texts = rows.iter().map(|row| row.get::<_, Option<String>>(0));
            Some(texts.collect::<Vec<_>>())
        };
        // The stopped session may also keep the last page, or the list of locks. A wait for these has no limit.
        let elsewhere = format!(
            "SELECT 'elsewhere' FROM pg_stat_activity
             WHERE usename = '{ROLE}' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock' LIMIT 1"
        );
        let mut waited = BTreeSet::new();
        // A client logs in before the session is stopped, because a login may wait for it, too. Its first request must add a
        // page; a later one has room in that page.
        let mut client = fixture.client().await;
        while waited.len() < 2 {
            assert!(
                !filling.is_finished(),
                "no request waited for the session that adds pages"
            );
            // sleep: the session adds pages until it is stopped.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let stopped = Stopped::new(pid);
            if found(&grows).await.is_none_or(|rows| rows.is_empty()) {
                continue;
            }
            let claim = client.claim(&fixture.key(), Mode::Exclusive);
            let acquiring = tokio::spawn(async move { client.granted(&claim).await });
            waited.clear();
            while waited.len() < 2
                && !acquiring.is_finished()
                && found(&elsewhere).await.is_some_and(|rows| rows.is_empty())
            {
                waited.extend(found(&waits).await.into_iter().flatten().flatten());
            }
            drop(stopped);
            acquiring.await.expect("it is granted");
            client = fixture.client().await;
        }
        case.ask(&format!("SELECT pg_terminate_backend({pid}, 30000)"));
        assert!(filling.await.expect("no panic").is_err(), "it was ended");
    }
}

/// A role whose transactions are stricter: statements that meet another session fail, and are repeated.
mod serializable {
    use super::*;

    async fn strict_version() -> impl Subject {
        strict("version").await
    }

    async fn strict_unique() -> impl Subject {
        strict("unique").await
    }

    async fn strict(layout: &'static str) -> Case {
        let option = "options=-c%20default_transaction_isolation%3Dserializable";
        Case::new(layout).await.with(option)
    }

    mod version {
        use super::strict_version;
        tenure_testkit::conformance!(strict_version, groups: [mutual]);
    }

    mod unique {
        use super::strict_unique;
        tenure_testkit::conformance!(strict_unique, groups: [mutual]);
    }
}
