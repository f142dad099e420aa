//! Fencing tokens: the tokens of each grant are greater than those of earlier grants of the key, however these ended.

use std::num::NonZeroU32;

use tenure_backend::{
    Fairness, Fencing, FencingToken, LockKey, Loss, Mode, Phase, RenewReply, RenewRequest, TokenRange,
};

use super::{Fixture, TestClient};

/// A store gives each grant tokens if its profile lists fencing, and none otherwise.
pub async fn grants_have_tokens_if_the_profile_says_so(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let grant = client.granted(&client.claim(&key, Mode::Exclusive)).await;
    assert_eq!(grant.tokens.is_some(), fixture.profile().fencing != Fencing::None);
}

/// Tokens rise from grant to grant, for one client and across clients (R12).
pub async fn tokens_rise_over_release(fixture: Fixture) {
    let (clients, key) = (fixture.three().await, fixture.key());
    let mut greatest = None;
    for turn in 0..9 {
        let client = &clients[turn % 3];
        let claim = client.claim(&key, Mode::Exclusive);
        let run = client.granted_soon(&claim).await.tokens;
        rises(&mut greatest, run);
        client.release(&claim).await;
        assert_eq!(client.status(&key).await, None);
    }
}

/// Tokens rise from a claim that expires to the next grant (R12).
pub async fn tokens_rise_over_expiry(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([silent, other], key) = (fixture.two().await, fixture.key());
    let mut greatest = None;
    for _ in 0..2 {
        let claim = silent.short_lease(&key, Mode::Exclusive);
        let grant = silent.granted(&claim).await;
        rises(&mut greatest, grant.tokens);
        fixture.pass(grant.lease + fixture.grace()).await;
    }
    rises(&mut greatest, next_run(&other, &key).await);
}

/// Tokens rise from an evicted claim to the next grant.
pub async fn tokens_rise_over_eviction(fixture: Fixture) {
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    let mut greatest = None;
    rises(&mut greatest, holder.granted(&claim).await.tokens);
    other.evict(&claim, "alice").await;
    rises(&mut greatest, next_run(&other, &key).await);
}

/// Tokens rise across a restart of the store, if the profile promises that (R12).
pub async fn tokens_rise_over_a_restart(fixture: Fixture) {
    let key = fixture.key();
    let before = fixture.client().await;
    let claim = before.claim(&key, Mode::Exclusive);
    let mut greatest = None;
    rises(&mut greatest, before.granted(&claim).await.tokens);
    before.release(&claim).await;
    if fixture.profile().fencing > Fencing::Process
        && let Some(restarted) = fixture.subject().restart()
    {
        restarted.await.expect("the store starts again");
    }
    let after = fixture.client().await;
    let claim = after.claim(&key, Mode::Exclusive);
    let run = after
        .granted_within(&claim, fixture.long_lease() * 2)
        .await
        .tokens;
    rises(&mut greatest, run);
}

/// A writer's token is greater than those of earlier readers, and smaller than those of later readers.
pub async fn tokens_rise_from_readers_to_writers_and_back(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let [first, second, last] = [&a, &b, &b].map(|client| client.claim(&key, Mode::Read));
    let runs = [a.granted(&first).await.tokens, b.granted(&second).await.tokens];
    let mut greatest = runs.into_iter().flatten().map(|run| run.last()).max();
    a.release(&first).await;
    b.release(&second).await;
    let writer = a.claim(&key, Mode::Write);
    rises(&mut greatest, a.granted_soon(&writer).await.tokens);
    a.release(&writer).await;
    rises(&mut greatest, b.granted_soon(&last).await.tokens);
}

/// A grant reserves as many tokens as requested, up to `max_grants`. The next grant's tokens are greater than all of
/// them.
pub async fn a_grant_reserves_the_requested_token_range(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let most = fixture.profile().limits.max_grants.get();
    let mut greatest = None;
    for asked in [1, 5, 64, 1, u32::MAX] {
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
            claim.grants = NonZeroU32::new(asked).expect("not zero");
        });
        let run = client.granted_soon(&claim).await.tokens;
        if let Some(run) = run {
            assert_eq!(run.count().get(), asked.min(most), "of {asked} tokens asked for");
        }
        rises(&mut greatest, run);
        client.release(&claim).await;
    }
}

/// A renewal with `raise` lifts the key's token counter and replaces the claim's tokens. `inspect` then shows the
/// first of the new tokens.
pub async fn a_raise_lifts_the_counter_and_the_claims_tokens(fixture: Fixture) {
    skip_if!(!fixture.profile().raises_tokens);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    let Some(run) = holder.granted(&claim).await.tokens else {
        return;
    };
    let raised = beyond(run);
    holder
        .stays_alive_as(&claim, Phase::Granted, raising(raised))
        .await;
    assert_eq!(holder.granted(&claim).await.tokens, Some(raised));
    let shown = other.status(&key).await.expect("a held key is shown").holders[0].token;
    assert_eq!(shown, Some(raised.first()));
    holder.release(&claim).await;
    let mut greatest = Some(raised.last());
    rises(&mut greatest, next_run(&other, &key).await);
}

/// A renewal with `raise` of a waiting claim lifts the token counter too, and does not grant the claim.
pub async fn a_raise_of_a_waiter_lifts_the_counter(fixture: Fixture) {
    skip_if!(!fixture.profile().raises_tokens);
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let held = holder.fair(&key, Mode::Exclusive);
    let Some(run) = holder.granted(&held).await.tokens else {
        return;
    };
    let waiting = waiter.queues(&key, Mode::Exclusive).await;
    let raised = beyond(run);
    waiter
        .stays_alive_as(&waiting, Phase::Either, raising(raised))
        .await;
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    let granted = waiter.granted_soon(&waiting).await.tokens;
    assert!(
        granted.is_some_and(|run| run == raised || run.first() > raised.last()),
        "{granted:?} was granted after a raise to {raised:?}"
    );
}

/// A renewal with `raise` below the token counter does not lower it.
pub async fn a_raise_never_lowers_the_counter(fixture: Fixture) {
    skip_if!(!fixture.profile().raises_tokens);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let first = holder.claim(&key, Mode::Exclusive);
    let Some(old) = holder.granted(&first).await.tokens else {
        return;
    };
    holder.release(&first).await;
    let claim = holder.claim(&key, Mode::Exclusive);
    let Some(newer) = holder.granted_soon(&claim).await.tokens else {
        return;
    };
    holder.stays_alive_as(&claim, Phase::Granted, raising(old)).await;
    holder.release(&claim).await;
    let mut greatest = Some(newer.last());
    rises(&mut greatest, next_run(&other, &key).await);
}

/// A renewal with `raise` does not lift the token counter if the claim has ended, or is in another phase than the
/// renewal asks for.
pub async fn a_raise_of_an_ended_claim_has_no_effect(fixture: Fixture) {
    skip_if!(!fixture.profile().raises_tokens);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.claim(&key, Mode::Exclusive);
    let Some(run) = holder.granted(&claim).await.tokens else {
        return;
    };
    let far = TokenRange::new(token(FencingToken::MAX / 2), NonZeroU32::MIN).expect("far below the greatest");
    let answer = holder.renew_as(&claim, Phase::Waiting, raising(far)).await;
    assert!(matches!(answer, RenewReply::Gone(Loss::Missing)), "{answer:?}");
    assert_eq!(holder.granted(&claim).await.tokens, Some(run));
    holder.release(&claim).await;
    let answer = holder.renew_as(&claim, Phase::Granted, raising(far)).await;
    assert!(matches!(answer, RenewReply::Gone(_)), "{answer:?}");
    let next = next_run(&other, &key).await;
    assert!(
        next.is_some_and(|next| next.first() < far.first()),
        "{next:?} was lifted by an ended claim"
    );
}

/// Acquires an exclusive claim and returns its tokens.
async fn next_run(client: &TestClient, key: &LockKey) -> Option<TokenRange> {
    client
        .granted_soon(&client.claim(key, Mode::Exclusive))
        .await
        .tokens
}

/// Asserts that `run` is above `greatest`, and sets `greatest` to its last token.
fn rises(greatest: &mut Option<FencingToken>, run: Option<TokenRange>) {
    let Some(run) = run else { return };
    assert!(
        Some(run.first()) > *greatest,
        "{run:?} is not greater than {greatest:?}"
    );
    *greatest = Some(run.last());
}

fn raising(run: TokenRange) -> impl FnOnce(&mut RenewRequest) {
    move |renewal| renewal.raise = Some(run)
}

fn beyond(run: TokenRange) -> TokenRange {
    let first = token(run.last().get() + 1_000_000_000_000);
    TokenRange::new(first, run.count()).expect("far below the greatest token")
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a number between 1 and the greatest token")
}
