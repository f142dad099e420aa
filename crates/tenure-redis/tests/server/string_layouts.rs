//! The layouts `plain` and `spring`: the strings, messages and records of a lock.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, BackendError, Claim, Fault, FencingToken, Grant, HolderId, LockKey, Mode, Query,
    ReleaseTarget, RenewReply, RenewRequest, TokenRange,
};
use tenure_testkit::suite::TestClient;

/// The value of a lock of ours.
fn written(claim: &Claim, run: TokenRange) -> String {
    let (id, first, count) = (claim.at.id, run.first(), run.count());
    format!("tenure:{id}:{first}:{count}:{}", claim.label)
}

fn tokens(grant: &Grant) -> TokenRange {
    grant.tokens.expect("tokens")
}

async fn list(client: &TestClient, prefix: &str) -> Result<Vec<String>, BackendError> {
    let query = Query::Prefix {
        prefix: prefix.into(),
        after: None,
        limit: NonZeroU32::MAX,
    };
    let page = client.backend().clone().inspect(query).await?;
    let mut names: Vec<String> = page.items.iter().map(|status| status.key.to_string()).collect();
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_is_a_string_that_expires_with_the_lease() {
    for layout in LayoutFixture::both().await {
        let (client, fixture, key) = (layout.client().await, &layout.fixture, layout.fixture.store.key());
        let claim = client.claim(&key, Mode::Exclusive);
        let run = tokens(&client.granted(&claim).await);
        assert_eq!(layout.value(&key), written(&claim, run));
        fixture.assert_expires_after(&layout.name(&key), 60);
        assert_eq!(fixture.keys(), [&layout.name(&key), "tenure_tokens"]);
        let shown = only_holder(&client, &key).await;
        assert_eq!(shown.id, HolderId::Claim(claim.at.id));
        assert_eq!(
            (shown.label, shown.token),
            (Some(claim.label.clone()), Some(run.first()))
        );
        client.release(&claim).await.freed_it(&claim);
        assert_eq!(fixture.keys(), ["tenure_tokens"]);
    }
}

/// A lock may also end without a message: by `DEL`, or by a failover that loses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_polls_within_its_own_lease() {
    for layout in LayoutFixture::both().await {
        let ([holder, waiter], key) = (
            [layout.client().await, layout.client().await],
            layout.fixture.store.key(),
        );
        hold_for(&holder, &key, Duration::from_secs(3_600)).await;
        let waiting = waiter.claim(&key, Mode::Exclusive);
        assert_eq!(poll_after(&waiter, &waiting).await, waiting.lease);
        layout.fixture.command(&["DEL", &layout.name(&key)]);
        waiter.granted(&waiting).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_writes_the_tokens_back_into_the_string() {
    let layout = LayoutFixture::plain().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let run = tokens(&client.granted(&claim).await);
    let first = FencingToken::new(run.last().get() + 1_000_000).expect("a token");
    let raised = TokenRange::new(first, NonZeroU32::new(3).expect("not zero")).expect("tokens");
    let lease = Duration::from_secs(40);
    let raise = RenewRequest {
        raise: Some(raised),
        lease,
        ..RenewRequest::of(&claim)
    };
    let replies = client.send_renewals(vec![raise]).await;
    assert!(matches!(replies[..], [RenewReply::Alive { .. }]), "{replies:?}");
    assert_eq!(layout.value(&key), written(&claim, raised));
    layout.fixture.assert_expires_after(key.as_str(), 40);
    let counter = layout.fixture.number(&["GET", "tenure_tokens"]);
    assert_eq!(counter as u64, raised.last().get());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cooldown_holds_the_key_for_foreign_clients_too() {
    let layout = LayoutFixture::plain().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    let claim = hold(&client, &key).await;
    let mut eviction = eviction_of(ReleaseTarget::Claim(claim.at.clone()));
    eviction.cooldown = Duration::from_secs(1);
    let other = layout.client().await;
    let evicting = other.send_release(eviction);
    let watching = async {
        // The eviction returns only after the cooldown, so its effect is watched meanwhile.
        let is_released = async {
            while layout.value(&key) != "tenure:cooldown" {
                tokio::task::yield_now().await;
            }
        };
        soon(is_released).await;
        assert!(!layout.foreign_acquire(&key), "it is held for no client");
        assert_eq!(client.status(&key).await, None, "no holder is shown");
        assert!(poll_after(&client, &client.claim(&key, Mode::Exclusive)).await > Duration::from_millis(100));
    };
    let (evicted, ()) = tokio::join!(evicting, watching);
    evicted.freed_it(&claim);
    assert!(layout.foreign_acquire(&key), "the cooldown is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_a_waiter_of_ours_at_once() {
    for layout in LayoutFixture::both().await {
        let ([holder, waiter], key) = (layout.fixture.store.two().await, layout.fixture.store.key());
        let held = hold(&holder, &key).await;
        let waiting = waiter.claim(&key, Mode::Exclusive);
        let mut wakes = waiter.watch(&waiting).await.expect("it listens");
        assert!(
            poll_after(&waiter, &waiting).await > Duration::from_secs(50),
            "it relies on the message"
        );
        // The first wake-up comes with the subscription.
        wait_for_wake(&mut wakes).await;
        let released = holder.release(&held).await;
        assert_eq!(released.others, Some(1));
        wait_for_wake(&mut wakes).await;
        let grant = waiter.granted(&waiting).await;
        drop(wakes);
        wait_until(|| {
            let subscribers = ["PUBSUB", "NUMSUB", &layout.channel(&key)];
            layout.fixture.text(&subscribers).ends_with(" 0")
        });
        let released = waiter.release(&waiting).await;
        assert_eq!(released.others, None, "other kinds of clients are not counted");
        assert_tokens_rise(
            &grant,
            &holder.granted(&holder.claim(&key, Mode::Exclusive)).await,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_waits_while_another_client_listens() {
    for layout in LayoutFixture::both().await {
        let ([holder, waiter], key) = (layout.fixture.store.two().await, layout.fixture.store.key());
        let held = hold(&holder, &key).await;
        let waiting = waiter.claim(&key, Mode::Exclusive);
        let _wakes = waiter.watch(&waiting).await.expect("it listens");
        let handed = holder
            .hand_over(&held, &holder.claim(&key, Mode::Exclusive))
            .await;
        assert!(
            matches!(handed.successor, Some(AcquireReply::Waiting { .. })),
            "{handed:?}"
        );
        assert_eq!(handed.others, Some(1));
        waiter.granted(&waiting).await;
    }
}

/// Spring 6.5.3 and later listen to a channel for each lock, and earlier ones to one for the registry. Both expect the
/// key as the message.
#[tokio::test(flavor = "multi_thread")]
async fn springs_waiters_are_woken_on_both_of_their_channels() {
    let layout = LayoutFixture::spring().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    let url = layout.fixture.redis.lock().url();
    let connection = redis::Client::open(url).expect("a URL").get_async_pubsub().await;
    let mut spring = connection.expect("it answers");
    let pattern = format!("{REGISTRY}-channel:*");
    spring.psubscribe(&pattern).await.expect("it listens");
    spring
        .subscribe(format!("{REGISTRY}-channel"))
        .await
        .expect("it listens");
    let mut messages = spring.on_message();
    let mut hears_both = async |what: &str| {
        for channel in [layout.channel(&key), format!("{REGISTRY}-channel")] {
            let message = soon(messages.next()).await.expect(what);
            assert_eq!(message.get_channel_name(), channel);
            let body: String = message.get_payload().expect("a text");
            assert_eq!(body, layout.name(&key));
        }
    };
    let claim = hold(&client, &key).await;
    let released = client.release(&claim).await;
    assert_eq!(
        released.others, None,
        "a pattern does not tell for which lock a client waits"
    );
    hears_both("a release").await;
    let claim = hold(&client, &key).await;
    let mut eviction = eviction_of(ReleaseTarget::Claim(claim.at.clone()));
    eviction.cooldown = Duration::from_millis(10);
    client.send_release(eviction).await.freed_it(&claim);
    hears_both("an eviction").await;
    hears_both("the end of the cooldown: a waiter that came too early sleeps for long").await;
}

/// Spring's unlock publishes to the channel of our waiters.
#[tokio::test(flavor = "multi_thread")]
async fn springs_unlock_wakes_a_waiter_of_ours() {
    let layout = LayoutFixture::spring().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    assert!(layout.foreign_acquire(&key));
    let waiting = client.claim(&key, Mode::Exclusive);
    let mut wakes = client.watch(&waiting).await.expect("it listens");
    wait_for_wake(&mut wakes).await;
    client.waits(&waiting).await;
    assert!(layout.foreign_release(&key));
    layout
        .fixture
        .command(&["PUBLISH", &layout.channel(&key), &layout.name(&key)]);
    wait_for_wake(&mut wakes).await;
    client.granted(&waiting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_lists_by_prefix_only_and_spring_its_registry() {
    let [plain, spring] = LayoutFixture::both().await;
    for layout in [&plain, &spring] {
        let client = layout.client().await;
        for name in ["a1", "a2", "b"] {
            hold(&client, &LockKey::new(name).expect("a key")).await;
        }
        let foreign = LockKey::new("a3").expect("a key");
        assert!(layout.foreign_acquire(&foreign));
        for command in [
            ["SET", "other", "data"],
            ["SET", "my{locks", "data"],
            ["SET", "a", "data"],
        ] {
            layout.fixture.command(&command);
        }
    }
    let (of_plain, of_spring) = (plain.client().await, spring.client().await);
    let refusal = list(&of_plain, "").await.expect_err("it needs a prefix");
    assert_eq!(refusal.fault(), Fault::Unsupported);
    let listed = list(&of_plain, "a").await.expect("it lists");
    assert_eq!(listed, ["a", "a1", "a2", "a3"], "any string may be a lock");
    assert_eq!(
        list(&of_spring, "").await.expect("it lists"),
        ["a1", "a2", "a3", "b"]
    );
    assert_eq!(list(&of_spring, "a").await.expect("it lists"), ["a1", "a2", "a3"]);
}

/// R4: a request that was never answered may arrive after the release, so the release leaves a record.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_leaves_a_record_only_for_requests_in_flight() {
    for layout in LayoutFixture::both().await {
        let [client, operator] = layout.fixture.store.two().await;
        let key = layout.fixture.store.key();
        let records = || layout.fixture.text(&["KEYS", "tenure_*"]);
        let released = hold(&client, &key).await;
        client.release(&released).await.freed_it(&released);
        assert_eq!(records(), "tenure_tokens");
        let never_sent = client.claim(&key, Mode::Exclusive);
        client.withdraw(&never_sent).await.freed_nothing();
        assert_eq!(records(), "tenure_tokens");
        // The store has placed no claim of this client, so another program may have sent an acquire request of it.
        let unseen = client.with_new_id().claim(&key, Mode::Exclusive);
        client.withdraw(&unseen).await.freed_nothing();
        let name = LockKey::new(layout.name(&key)).expect("a key");
        let record = format!("{}:{}", tagged("tenure_claim", &name), unseen.at.id);
        assert_eq!(layout.fixture.text(&["GET", &record]), "E");
        layout.fixture.assert_expires_after(&record, 12);
        client.with_new_id().finds_free(&key, Mode::Exclusive).await;
        let evicted = hold(&client, &key).await;
        operator.evict(&evicted, "alice").await.freed_it(&evicted);
        let record = format!("{}:{}", tagged("tenure_claim", &name), evicted.at.id);
        layout.fixture.assert_expires_after(&record, 72);
        assert_evicted_by(&client.renew(&evicted).await, "alice");
        layout.fixture.store.pass(Duration::from_secs(73)).await;
        assert_eq!(layout.fixture.keys(), ["tenure_tokens"]);
    }
}
