//! What `inspect` shows: live holders and waiters as they are, and nothing else.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Fairness, Fault, HolderId, LockKey, Mode, Phase, Query};

use crate::suite::trial::permits;
use crate::suite::{Client, Trial};

/// A holder is shown under its claim's name, with what the profile says can be seen, from its first renewal on at the latest.
pub async fn inspect_shows_a_holder_with_its_details(trial: Trial) {
    let ([holder, reader], key) = (trial.two().await, trial.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    if trial.profile().first_renewal.is_some() {
        holder.stays_alive(&claim, Phase::Granted).await;
    }
    let status = reader.status(&key).await.expect("a held key is shown");
    assert_eq!((&status.key, status.kind), (&key, Mode::Exclusive.kind()));
    assert_eq!(status.holders.len(), 1, "{status:?}");
    let shown = &status.holders[0];
    assert_eq!(
        (&shown.id, shown.mode),
        (&HolderId::Claim(claim.at.id), Mode::Exclusive)
    );
    let sees = trial.profile().inspection;
    if sees.labels {
        assert_eq!(shown.label.as_ref(), Some(&claim.label));
    }
    if let Some(run) = grant.tokens {
        assert_eq!(shown.token, Some(run.first()));
    }
    if sees.remaining {
        let remaining = shown.remaining.expect("the time left is known");
        assert!(
            remaining > Duration::ZERO && remaining <= grant.lease + trial.profile().limits.expiry_slack,
            "{remaining:?}"
        );
    }
    assert_eq!(status.waiters.is_some(), sees.queue, "{status:?}");
}

/// Every holder of a shared key is shown, each with its own mode.
pub async fn inspect_shows_all_holders_of_a_shared_key(trial: Trial) {
    let mode = permits(2, 7);
    skip_if!(trial.lacks(mode).await);
    let ([a, b], key) = (trial.two().await, trial.key());
    let claims = [
        a.holds(&key, mode).await,
        b.holds(&key, permits(1, 7)).await,
        a.holds(&key, mode).await,
    ];
    let status = b.status(&key).await.expect("a held key is shown");
    assert_eq!(status.kind, mode.kind());
    let shown = status.holders.iter();
    let shown: BTreeSet<String> = shown.map(|one| format!("{} {}", one.id, one.mode)).collect();
    let expected = claims
        .iter()
        .map(|claim| format!("{} {}", claim.at.id, claim.mode));
    assert_eq!(shown, expected.collect());
}

/// The queue is shown in its order, where the store can tell.
pub async fn inspect_shows_waiters_in_queue_order(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, c], key) = (trial.three().await, trial.key());
    let [held, waiting @ ..] = [&a, &b, &c, &b].map(|client| client.fair(&key, Mode::Exclusive));
    a.granted(&held).await;
    for claim in &waiting {
        a.waits(claim).await;
    }
    let status = c.status(&key).await.expect("a held key is shown");
    assert_eq!(status.holders.len(), 1);
    if trial.profile().inspection.queue {
        let shown = status.waiters.expect("the queue can be seen");
        let shown: Vec<HolderId> = shown.into_iter().map(|waiter| waiter.id).collect();
        assert_eq!(shown, waiting.map(|claim| HolderId::Claim(claim.at.id)));
    }
}

/// A key that nobody holds or waits for is not shown: before, after a release and after an expiry.
pub async fn inspect_does_not_show_a_free_key(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    assert_eq!(client.status(&key).await, None);
    let released = client.holds(&key, Mode::Exclusive).await;
    client.release(&released).await.freed_it(&released);
    assert_eq!(client.status(&key).await, None);
    skip_if!(trial.lives_by_session().await);
    let expired = client.brief(&key, Mode::Exclusive);
    let grant = client.granted_soon(&expired).await;
    trial.pass(grant.lease + trial.grace()).await;
    assert_eq!(client.status(&key).await, None, "an expired holder is not shown");
    if trial.profile().inspection.lists {
        assert_eq!(client.list("", 10).await, [], "an expired holder is not listed");
    }
}

/// Page by page each key comes exactly once, and only those that begin with the prefix, taken literally.
pub async fn a_listing_shows_each_matching_key_once(trial: Trial) {
    let client = trial.client().await;
    if !trial.profile().inspection.lists {
        return assert_no_listing(&client).await;
    }
    let names = |prefix: &str| (0..7).map(|n| format!("{prefix}{n}")).collect::<BTreeSet<_>>();
    let prefixes = ["a", "A", "a%", "a_", "a*", "[a]", "ä", "{a}", "a/", "axb"];
    for name in prefixes.iter().flat_map(|prefix| names(prefix)) {
        client.holds(&named(&name), Mode::Exclusive).await;
    }
    let all: BTreeSet<String> = prefixes.iter().flat_map(|prefix| names(prefix)).collect();
    for limit in [1, 3, 7, 1_000] {
        for prefix in prefixes.iter().chain(&["", "nobody"]) {
            let listed = client.list(prefix, limit).await;
            let shown: BTreeSet<String> = listed.iter().map(|status| status.key.to_string()).collect();
            assert_eq!(shown.len(), listed.len(), "each key comes once");
            let expected = all.iter().filter(|name| name.starts_with(prefix)).cloned();
            assert_eq!(shown, expected.collect(), "{prefix:?} with {limit} on a page");
        }
    }
}

/// A page says that there is another only if there is one: not because it is full, and not for a key that is free again.
pub async fn a_page_never_announces_an_empty_page(trial: Trial) {
    let client = trial.client().await;
    if !trial.profile().inspection.lists {
        return assert_no_listing(&client).await;
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        client.holds(&named(name), Mode::Exclusive).await;
    }
    let last = client.holds(&named("z"), Mode::Exclusive).await;
    client.release(&last).await.freed_it(&last);
    for limit in [1, 2, 3, 5, 6, 7] {
        let pages = client.pages("", limit).await;
        let sizes: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 6);
        assert!(sizes.iter().all(|size| *size > 0), "{limit} on a page: {sizes:?}");
    }
}

async fn assert_no_listing(client: &Client) {
    let query = Query::Prefix {
        prefix: Arc::from(""),
        after: None,
        limit: NonZeroU32::MIN,
    };
    let answer = client
        .in_all_weathers(|backend| backend.inspect(query.clone()))
        .await;
    let refusal = answer.expect_err("a store that cannot list says so");
    assert_eq!(refusal.fault(), Fault::Unsupported);
}

fn named(name: &str) -> LockKey {
    LockKey::new(name).expect("a name without control characters")
}
