//! `inspect`: shows live holders and waiters with their details, and nothing else.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Fairness, Fault, HolderId, LockKey, Mode, Phase, Query};

use crate::suite::fixture::permits;
use crate::suite::{Fixture, TestClient};

/// `inspect` shows a holder with its claim's ID and the details that the profile promises. If the profile has a
/// `first_renewal`, the details may be missing until the claim's first renewal.
pub async fn inspect_shows_a_holder_with_its_details(fixture: Fixture) {
    let ([holder, reader], key) = (fixture.two().await, fixture.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    if fixture.profile().first_renewal.is_some() {
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
    let sees = fixture.profile().inspection;
    if sees.labels {
        assert_eq!(shown.label.as_ref(), Some(&claim.label));
    }
    if let Some(run) = grant.tokens {
        assert_eq!(shown.token, Some(run.first()));
    }
    if sees.remaining {
        let remaining = shown.remaining.expect("the remaining time is shown");
        assert!(
            remaining > Duration::ZERO && remaining <= grant.lease + fixture.profile().limits.expiry_slack,
            "{remaining:?}"
        );
    }
    assert_eq!(status.waiters.is_some(), sees.queue, "{status:?}");
}

/// `inspect` shows every holder of a shared key, each with its own mode.
pub async fn inspect_shows_all_holders_of_a_shared_key(fixture: Fixture) {
    let mode = permits(2, 7);
    skip_if!(fixture.refuses_mode(mode).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
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

/// `inspect` shows waiters in the order of the queue, if the profile says that `inspect` shows the queue.
pub async fn inspect_shows_waiters_in_queue_order(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let [held, waiting @ ..] = [&a, &b, &c, &b].map(|client| client.fair(&key, Mode::Exclusive));
    a.granted(&held).await;
    for claim in &waiting {
        a.waits(claim).await;
    }
    let status = c.status(&key).await.expect("a held key is shown");
    assert_eq!(status.holders.len(), 1);
    if fixture.profile().inspection.queue {
        let shown = status.waiters.expect("the queue can be seen");
        let shown: Vec<HolderId> = shown.into_iter().map(|waiter| waiter.id).collect();
        assert_eq!(shown, waiting.map(|claim| HolderId::Claim(claim.at.id)));
    }
}

/// `inspect` does not show a key without holders and waiters: before the first claim, after a release, and after an
/// expiry.
pub async fn inspect_does_not_show_a_free_key(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    assert_eq!(client.status(&key).await, None);
    let released = client.holds(&key, Mode::Exclusive).await;
    client.release(&released).await.freed_it(&released);
    assert_eq!(client.status(&key).await, None);
    skip_if!(fixture.lives_by_session().await);
    let expired = client.short_lease(&key, Mode::Exclusive);
    let grant = client.granted_soon(&expired).await;
    fixture.pass(grant.lease + fixture.grace()).await;
    assert_eq!(client.status(&key).await, None, "an expired holder is not shown");
    if fixture.profile().inspection.lists {
        assert_eq!(client.list("", 10).await, [], "an expired holder is not listed");
    }
}

/// A listing shows each key that starts with the prefix exactly once, over all its pages. Characters
/// such as `*` and `%` in the prefix match only themselves.
pub async fn a_listing_shows_each_matching_key_once(fixture: Fixture) {
    let client = fixture.client().await;
    if !fixture.profile().inspection.lists {
        return assert_no_listing(&client).await;
    }
    let names = |prefix: &str| (0..7).map(|n| format!("{prefix}{n}")).collect::<BTreeSet<_>>();
    let prefixes = ["a", "A", "a%", "a_", "a*", "[a]", "ä", "{a}", "a/", "axb"];
    for name in prefixes.iter().flat_map(|prefix| names(prefix)) {
        client.holds(&named(&name), Mode::Exclusive).await;
    }
    let all: BTreeSet<String> = prefixes.iter().flat_map(|prefix| names(prefix)).collect();
    for limit in [1, 3, 7, 1_000] {
        for prefix in prefixes.iter().chain(&["", "unused"]) {
            let expected = all.iter().filter(|name| name.starts_with(prefix)).cloned();
            let expected: BTreeSet<String> = expected.collect();
            // Each page costs some stores a walk over all keys, and the claims are not renewed.
            if limit < 7 && expected.len() > 7 {
                continue;
            }
            let listed = client.list(prefix, limit).await;
            let shown: BTreeSet<String> = listed.iter().map(|status| status.key.to_string()).collect();
            assert_eq!(shown.len(), listed.len(), "each key is listed once");
            assert_eq!(shown, expected, "prefix {prefix:?} with {limit} keys per page");
        }
    }
}

/// A page announces a next page only if more held keys follow: not merely because the page is full, or because a key
/// that is free now would follow.
pub async fn a_page_never_announces_an_empty_page(fixture: Fixture) {
    let client = fixture.client().await;
    if !fixture.profile().inspection.lists {
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
        assert!(
            sizes.iter().all(|size| *size > 0),
            "{limit} keys per page: {sizes:?}"
        );
    }
}

async fn assert_no_listing(client: &TestClient) {
    let query = Query::Prefix {
        prefix: Arc::from(""),
        after: None,
        limit: NonZeroU32::MIN,
    };
    let answer = client.retry(|backend| backend.inspect(query.clone())).await;
    let refusal = answer.expect_err("a store that cannot list refuses a listing");
    assert_eq!(refusal.fault(), Fault::Unsupported);
}

fn named(name: &str) -> LockKey {
    LockKey::new(name).expect("a name without control characters")
}
