//! Locks that clients of other libraries hold, in the layouts `plain` and `spring`, and keys of another format.

use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, BackendError, Fault, Grant, HolderId, Kind, Loss, Mode, Phase, Query, ReleaseTarget,
    RenewReply,
};

/// The poll interval while a client of another kind holds.
const POLL: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_holder_is_shown_and_polled_until_it_leaves() {
    for layout in LayoutFixture::both().await {
        let (client, key) = (layout.client().await, layout.fixture.store.key());
        assert!(layout.foreign_acquire(&key));
        let claim = client.claim(&key, Mode::Exclusive);
        assert_eq!(poll_after(&client, &claim).await, POLL);
        let shown = only_holder(&client, &key).await;
        assert_eq!(shown.id, HolderId::Foreign(FOREIGN.into()));
        assert_eq!((shown.label, shown.token), (None, None));
        let remaining = shown.remaining.expect("it has a lease");
        assert!(remaining > Duration::from_secs(55), "{remaining:?}");
        assert_eq!(layout.value(&key), FOREIGN);
        assert!(layout.foreign_release(&key));
        client.granted(&claim).await;
    }
}

/// redis-py sets no time limit by default, so such a lock may have no expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_lock_without_expiry_is_waited_for() {
    let layout = LayoutFixture::plain().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    layout.fixture.command(&["SET", key.as_str(), FOREIGN, "NX"]);
    let claim = client.claim(&key, Mode::Exclusive);
    assert_eq!(poll_after(&client, &claim).await, POLL);
    assert_eq!(only_holder(&client, &key).await.remaining, None);
    // The end of a lease is known, so a waiter does not poll later than that.
    layout.fixture.command(&["PEXPIRE", key.as_str(), "40"]);
    if let AcquireReply::Waiting { poll_after, .. } = client.acquire(&claim).await {
        assert!(poll_after <= Duration::from_millis(41), "{poll_after:?}");
    }
    client.granted_soon(&claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_client_neither_takes_nor_frees_our_lock() {
    for layout in LayoutFixture::both().await {
        let (client, key) = (layout.client().await, layout.fixture.store.key());
        let claim = hold(&client, &key).await;
        assert!(!layout.foreign_acquire(&key), "it is held");
        assert!(!layout.foreign_release(&key), "another client holds it");
        client.stays_alive(&claim, Phase::Granted).await;
        client.release(&claim).await.freed_it(&claim);
        assert!(layout.foreign_acquire(&key), "it is free");
    }
}

/// R23: after the end of our lease, a late call of ours changes nothing for the client that holds the key by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_call_of_ours_leaves_a_foreign_lock_alone() {
    for layout in LayoutFixture::both().await {
        let (client, key) = (layout.client().await, layout.fixture.store.key());
        let claim = hold_for(&client, &key, Duration::from_secs(10)).await;
        layout.fixture.store.pass(Duration::from_secs(11)).await;
        assert!(layout.foreign_acquire(&key), "our lease has ended");
        let renewed = client.renew(&claim).await;
        assert!(matches!(renewed, RenewReply::Gone(Loss::Expired)), "{renewed:?}");
        client.release(&claim).await.freed_nothing();
        let another = client.claim(&key, Mode::Exclusive);
        let handed = client.hand_over(&claim, &another).await;
        assert!(
            matches!(handed.successor, Some(AcquireReply::Waiting { .. })),
            "{handed:?}"
        );
        assert_eq!(layout.value(&key), FOREIGN);
        assert!(layout.fixture.left(&layout.name(&key)) > 55_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_holders_are_evicted_by_the_shown_id() {
    for layout in LayoutFixture::both().await {
        let (client, key) = (layout.client().await, layout.fixture.store.key());
        let evict = async |target: ReleaseTarget| client.send_release(eviction_of(target)).await.freed;
        assert!(layout.foreign_acquire(&key));
        let shown = only_holder(&client, &key).await.id;
        let stranger = HolderId::Foreign("0f2c".into());
        assert_eq!(evict(stranger.on(key.clone())).await, []);
        assert_eq!(
            evict(shown.clone().on(key.clone())).await,
            std::slice::from_ref(&shown)
        );
        assert!(layout.foreign_acquire(&key), "it is free");
        assert_eq!(evict(ReleaseTarget::All(key.clone())).await, [shown]);
        // The evictions left no record, because a foreign client would not read it.
        assert_eq!(layout.fixture.text(&["KEYS", "*tenure_claim*"]), "");
        // rslock writes 20 random bytes, which are no text.
        let script = "return redis.call('SET', KEYS[1], '\\255\\0\\1bytes', 'PX', 60000)";
        layout.fixture.command(&["EVAL", script, "1", &layout.name(&key)]);
        let shown = only_holder(&client, &key).await.id;
        assert_eq!(shown, HolderId::Foreign("hex:ff00016279746573".into()));
        assert_eq!(
            evict(shown.clone().on(key.clone())).await,
            std::slice::from_ref(&shown)
        );
        client.finds_free(&key, Mode::Exclusive).await;
    }
}

/// A lock of the layout `redisson` excludes ours: `SET NX` and our scripts find the key held.
#[tokio::test(flavor = "multi_thread")]
async fn a_redisson_lock_is_waited_for_as_a_foreign_one() {
    for layout in LayoutFixture::both().await {
        let (client, key) = (layout.client().await, layout.fixture.store.key());
        let name = layout.name(&key);
        layout.fixture.command(&["HSET", &name, JAVA, "1"]);
        layout.fixture.command(&["PEXPIRE", &name, "60000"]);
        let claim = client.claim(&key, Mode::Exclusive);
        assert_eq!(poll_after(&client, &claim).await, POLL);
        assert_eq!(
            only_holder(&client, &key).await.id,
            HolderId::Foreign(JAVA.into())
        );
        let renewed = client.renew(&claim).await;
        assert!(matches!(renewed, RenewReply::Gone(_)), "{renewed:?}");
        client.withdraw(&claim).await.freed_nothing();
        for target in [
            HolderId::Foreign(JAVA.into()).on(key.clone()),
            ReleaseTarget::All(key.clone()),
        ] {
            let refusal = release_error(client.backend(), eviction_of(target)).await;
            assert_eq!(refusal.fault(), Fault::UnknownKind);
            assert_in_words(&refusal);
        }
        assert_eq!(layout.fixture.number(&["HLEN", &name]), 1);
        layout.fixture.command(&["DEL", &name]);
        client.granted(&client.claim(&key, Mode::Exclusive)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_format_is_refused_in_words() {
    for layout in LayoutFixture::both().await {
        let client = layout.client().await;
        for make in [
            &["HSET", "name", "ada"][..],
            &["RPUSH", "ada"],
            &["ZADD", "1", "ada"],
            &["SADD", "ada"],
        ] {
            let key = layout.fixture.store.key();
            let name = layout.name(&key);
            layout
                .fixture
                .command(&[&make[..1], &[&name], &make[1..]].concat());
            let claim = client.claim(&key, Mode::Exclusive);
            let refusal = client.try_acquire(&claim).await.expect_err("it is no lock");
            assert_eq!(refusal.fault(), Fault::UnknownKind);
            assert_in_words(&refusal);
            let query = Query::Key(key.clone());
            let refusal = client
                .backend()
                .clone()
                .inspect(query)
                .await
                .expect_err("it is no lock");
            assert_eq!(refusal.fault(), Fault::UnknownKind);
            assert_in_words(&refusal);
            client.withdraw(&claim).await.freed_nothing();
            let all = eviction_of(ReleaseTarget::All(key.clone()));
            client.send_release(all).await.freed_nothing();
            assert!(layout.fixture.exists(&name), "{make:?}");
        }
        let key = layout.fixture.store.key();
        layout
            .fixture
            .command(&["HSET", &layout.name(&key), "mode", "read", JAVA, "1"]);
        let refusal = client.try_acquire(&client.claim(&key, Mode::Exclusive)).await;
        let fault = Fault::Mismatch {
            held: Kind::ReadWrite,
            asked: Kind::Mutex,
        };
        assert_eq!(refusal.expect_err("it is another kind").fault(), fault);
    }
}

/// A client of the layout `redisson` meets a lock of the layout `plain`.
#[tokio::test(flavor = "multi_thread")]
async fn a_string_is_refused_in_words_by_the_layout_redisson() {
    let (fixture, client, key) = Fixture::one().await;
    for expiry in [&["NX"][..], &["PX", "60000"]] {
        let set = ["SET", key.as_str(), FOREIGN];
        fixture.command(&[&set, expiry].concat());
        for claim in [
            client.claim(&key, Mode::Exclusive),
            client.fair(&key, Mode::Exclusive),
        ] {
            assert_in_words(&client.try_acquire(&claim).await.expect_err("it is no lock"));
        }
    }
    assert_eq!(fixture.text(&["GET", key.as_str()]), FOREIGN);
}

/// Asserts that an error names the cause in plain words, and not as Redis does.
#[track_caller]
fn assert_in_words(error: &BackendError) {
    let all = printed(error);
    assert!(all.contains("held by another kind of client"), "{all}");
    assert!(!all.contains("WRONGTYPE"), "{all}");
}

/// A foreign client and ours take turns: no token of ours repeats, and the foreign client draws none.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_over_a_foreign_holder() {
    let layout = LayoutFixture::plain().await;
    let (client, key) = (layout.client().await, layout.fixture.store.key());
    let mut before: Option<Grant> = None;
    for _ in 0..3 {
        let claim = client.claim(&key, Mode::Exclusive);
        let grant = client.granted(&claim).await;
        if let Some(before) = &before {
            assert_tokens_rise(before, &grant);
        }
        before = Some(grant);
        client.release(&claim).await.freed_it(&claim);
        assert!(layout.foreign_acquire(&key) && layout.foreign_release(&key));
    }
}
