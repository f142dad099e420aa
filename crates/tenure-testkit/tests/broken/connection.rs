//! Bugs planted between a client and the memory store: each changes requests before they are sent, or replies.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, future, stream};
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimRef, Cursor, Effect, Fairness, Fault,
    FencingToken, Grant, HolderId, Instant, LockKey, LockStatus, Loss, Mode, Page, Phase, Query,
    ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, TokenRange, Wakes,
};
use tenure_memory::MemoryStore;
use tenure_testkit::{Exchange, Faults, Reply, Request, StoreFailure, When};

use crate::bug::Bug::{self, *};
use crate::store::SlowLink;

/// Time for which the bug `ForgetsEndedSoon` remembers an ended claim.
const SOON: Duration = Duration::from_secs(1);
/// The bug `LongBatchesAreShuffled` rotates the replies to a longer batch by this number.
const CHUNK: usize = 100;

/// Connection of one client, with at most one bug.
#[derive(Debug)]
pub(crate) struct BuggyConnection {
    pub(crate) bug: Option<Bug>,
    pub(crate) memory: MemoryStore,
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) link: Arc<SlowLink>,
    pub(crate) shared: Arc<SharedState>,
}

/// State shared by all connections to one store.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) failure: Mutex<Option<StoreFailure>>,
    granted: Mutex<HashSet<ClaimRef>>,
    released: Mutex<HashMap<ClaimRef, Instant>>,
    /// What `inspect` showed of each key after its last grant, for the bug `ShowsTheExpired`.
    shown: Mutex<HashMap<LockKey, LockStatus>>,
}

impl Faults for BuggyConnection {
    fn store(&self) -> Arc<dyn Backend> {
        if self.bug == Some(ClosingDoesNotClose) {
            return self.memory.client(self.store.clock().clone());
        }
        self.store.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        if when == When::Before {
            for Exchange { request, reply, .. } in call {
                self.bug.iter().for_each(|bug| self.change(*bug, request));
                *reply = self.failing_reply(request);
            }
            return self.link.delay_request();
        }
        self.link.delay_reply();
        let Some(bug) = self.bug else { return };
        for Exchange { request, reply, .. } in call.iter_mut() {
            let reply = reply.as_mut().expect("the memory store replies to each element");
            if let Request::Acquire(claim, _) = request {
                let status = self.show(&claim.at.key).await;
                if self.grants(bug, claim, status, reply) {
                    *reply = Ok(Reply::Acquire(self.grant(claim)));
                }
            }
            if let Ok(reply) = reply {
                self.falsify(bug, request, reply).await;
            }
        }
        falsify_batch(bug, call);
    }
}

impl BuggyConnection {
    fn now(&self) -> Instant {
        self.store.clock().now()
    }

    /// Reply of the store while the test makes it fail; `None` while the store works.
    fn failing_reply(&self, request: &Request) -> Option<Result<Reply, BackendError>> {
        let failure = (*self.shared.failure.lock())?;
        let fault = match (self.bug, request) {
            (Some(FailureLooksLikeLoss), Request::Renew(_)) => return Some(Ok(missing())),
            (Some(FailureLooksTransient), _) => Fault::Unavailable,
            _ => failure.fault(),
        };
        Some(Err(BackendError::new(
            fault,
            Effect::None,
            "the store was made to fail",
        )))
    }

    /// Changes a request before it is sent, as `bug` requires.
    fn change(&self, bug: Bug, request: &mut Request) {
        match request {
            Request::Acquire(claim, not_after) => {
                self.change_not_after(bug, not_after);
                if bug == KeysFoldCase {
                    let folded = LockKey::new(claim.at.key.as_str().to_lowercase());
                    Arc::make_mut(claim).at.key = folded.expect("a valid key stays valid in lower case");
                }
            }
            Request::Renew(renewal) => match bug {
                RenewalIgnoresItsPhase => renewal.only = Phase::Either,
                RenewalNeverLengthens => renewal.shorten_only = true,
                ShortenOnlyIsIgnored => renewal.shorten_only = false,
                RaiseIsIgnored => renewal.raise = None,
                DowngradeIsIgnored => renewal.downgrade = false,
                _ => {}
            },
            Request::Release(release) => {
                let successor = release.successor.iter_mut();
                successor.for_each(|successor| self.change_not_after(bug, &mut successor.not_after));
                let key = release.target.key().clone();
                match bug {
                    AnyoneReleases if release.successor.is_none() => release.target = ReleaseTarget::All(key),
                    WithdrawnWaiterStays if release.cause == Cause::Withdrawn => {
                        release.target = HolderId::parse("unknown holder").on(key);
                    }
                    NoCooldownAfterEviction => release.cooldown = Duration::ZERO,
                    EvictionIsNotReported => release.cause = Cause::Unlocked,
                    _ => {}
                }
            }
            Request::Watch(_) | Request::Inspect(_) => {}
        }
    }

    fn change_not_after(&self, bug: Bug, not_after: &mut Instant) {
        if bug == PlacesTooLate || bug == NotAfterIsCheckedWhenSending && self.now() <= *not_after {
            *not_after = Instant::NEVER;
        }
    }

    /// Returns whether the bug grants a claim that the store has not granted.
    fn grants(
        &self,
        bug: Bug,
        claim: &Claim,
        status: Option<LockStatus>,
        reply: &Result<Reply, BackendError>,
    ) -> bool {
        let (holders, waiters) = status.map_or_else(Default::default, |status| {
            (status.holders, status.waiters.unwrap_or_default())
        });
        let held = || holders.iter().map(|holder| holder.mode);
        let admitted = claim.mode.admits(held());
        let reply = match reply {
            Ok(Reply::Acquire(reply)) => reply,
            Err(error) => return bug == KindsMix && matches!(error.fault(), Fault::Mismatch { .. }),
            _ => return false,
        };
        match (bug, reply, claim.mode) {
            (ForgetsEnded, AcquireReply::Ended, _) => admitted,
            (ForgetsEndedSoon, AcquireReply::Ended, _) => {
                let released = self.shared.released.lock().get(&claim.at).copied();
                admitted && released.is_some_and(|at| at + SOON < self.now())
            }
            (ReaderIgnoresWriter, AcquireReply::Waiting { .. }, Mode::Read) => {
                held().any(|held| held == Mode::Write)
            }
            (OnePermitTooMany, AcquireReply::Waiting { .. }, Mode::Permits { take, of }) => {
                let used: u32 = held().map(permits).sum();
                used + take.get() == of.get() + 1
            }
            (LastComeFirstServed, AcquireReply::Waiting { .. }, _) => {
                let last = waiters.iter().skip(1).last();
                admitted && last.is_some_and(|last| last.id == HolderId::Claim(claim.at.id))
            }
            (UnfairOvertakesTheQueue, AcquireReply::Waiting { .. }, _) => {
                admitted && claim.fairness == Fairness::Unfair && !waiters.is_empty()
            }
            (SmallOvertakesLarge, AcquireReply::Waiting { .. }, Mode::Permits { .. }) => {
                admitted && waiters.first().is_some_and(|first| !first.mode.admits(held()))
            }
            _ => false,
        }
    }

    /// Forged grant, which the store did not make.
    fn grant(&self, claim: &Claim) -> AcquireReply {
        let tokens = run_from(1 << 60, claim.grants.min(self.store.profile().limits.max_grants));
        AcquireReply::Granted(Grant::new(tokens, self.now(), claim.lease))
    }

    /// Changes the store's reply to a request, as `bug` requires.
    async fn falsify(&self, bug: Bug, request: &Request, reply: &mut Reply) {
        match (request, reply) {
            (Request::Acquire(claim, not_after), Reply::Acquire(reply)) => {
                self.falsify_acquire(bug, claim, *not_after, reply).await;
            }
            (Request::Renew(renewal), Reply::Renew(renewed)) => {
                self.falsify_renewal(bug, renewal, renewed).await;
            }
            (Request::Release(release), Reply::Release(released)) => {
                self.falsify_release(bug, release, released).await;
            }
            (Request::Watch(_), Reply::Watch(wakes)) if bug == WakesNoWaiter => {
                let woken = std::mem::replace(wakes, Wakes::new(stream::pending()));
                *wakes = Wakes::new(woken.filter(|()| future::ready(false)));
            }
            (Request::Inspect(query), Reply::Inspect(page)) => self.falsify_page(bug, query, page).await,
            _ => {}
        }
    }

    async fn falsify_acquire(&self, bug: Bug, claim: &Claim, not_after: Instant, reply: &mut AcquireReply) {
        match (bug, &mut *reply) {
            (LeaseStartsAtTheReply, AcquireReply::Granted(grant)) => grant.held_from = self.now(),
            (LeaseNeverEnds, AcquireReply::Granted(_)) => self.keep(&claim.at, Phase::Granted).await,
            (DeadWaitersStay, AcquireReply::Waiting { .. }) => self.keep(&claim.at, Phase::Waiting).await,
            (LatePollIsRefused, AcquireReply::Granted(_) | AcquireReply::Waiting { .. })
                if self.now() > not_after =>
            {
                *reply = AcquireReply::TooLate;
            }
            (TokensNeverRise, AcquireReply::Granted(grant)) => grant.tokens = run_from(1, claim.grants),
            (RepetitionDrawsAnotherToken, AcquireReply::Granted(grant)) => {
                let repeated = !self.shared.granted.lock().insert(claim.at.clone());
                let other = |run: TokenRange| run_from(run.first().get() + u64::from(repeated), run.count());
                grant.tokens = grant.tokens.and_then(other);
            }
            (ShowsTheExpired, AcquireReply::Granted(_)) => {
                let status = self.show(&claim.at.key).await;
                let named = status.map(|status| (status.key.clone(), status));
                self.shared.shown.lock().extend(named);
            }
            _ => {}
        }
    }

    async fn falsify_renewal(&self, bug: Bug, renewal: &RenewRequest, renewed: &mut RenewReply) {
        let (held_from, asked) = (self.now(), renewal.lease);
        let revived = RenewReply::Alive {
            held_from,
            lease: asked,
        };
        match (bug, &mut *renewed) {
            (RenewalHidesItsRounding | RenewalNeverLengthens, RenewReply::Alive { lease, .. }) => {
                *lease = asked
            }
            (LeaseStartsAtTheReply, RenewReply::Alive { held_from, .. }) => *held_from = self.now(),
            (LeaseNeverEnds, RenewReply::Alive { .. }) => self.keep(&renewal.claim, Phase::Granted).await,
            (DeadWaitersStay, RenewReply::Alive { .. }) => self.keep(&renewal.claim, Phase::Waiting).await,
            (RenewalRevivesExpired, RenewReply::Gone(Loss::Expired)) => *renewed = revived,
            (RenewalRecreates, RenewReply::Gone(loss)) if *loss != Loss::Expired => *renewed = revived,
            _ => {}
        }
    }

    async fn falsify_release(&self, bug: Bug, release: &ReleaseRequest, released: &mut ReleaseReply) {
        let ReleaseReply::Done {
            others, successor, ..
        } = released
        else {
            return;
        };
        let key = release.target.key();
        self.shared.shown.lock().remove(key);
        if let ReleaseTarget::Claim(claim) = &release.target {
            self.shared.released.lock().insert(claim.clone(), self.now());
        }
        match (bug, successor) {
            (CountsOwnWaiters, _) => {
                let waiters = self.show(key).await.and_then(|status| status.waiters);
                *others = u32::try_from(waiters.unwrap_or_default().len()).ok();
            }
            (SuccessorOvertakes, Some(reply @ AcquireReply::Waiting { .. })) => {
                let free = self
                    .show(key)
                    .await
                    .is_none_or(|status| status.holders.is_empty());
                if let Some(successor) = release.successor.as_ref().filter(|_| free) {
                    *reply = self.grant(&successor.claim);
                }
            }
            (SuccessorIsForgotten, Some(reply)) => {
                let (ahead, poll_after) = (None, Duration::from_millis(1));
                *reply = AcquireReply::Waiting { ahead, poll_after };
            }
            (LeaseStartsAtTheReply, Some(AcquireReply::Granted(grant))) => grant.held_from = self.now(),
            _ => {}
        }
    }

    async fn falsify_page(&self, bug: Bug, query: &Query, page: &mut Page<LockStatus>) {
        let cursor = |status: &LockStatus| Cursor::new(status.key.as_str());
        match (bug, query) {
            (ShowsTheExpired, Query::Key(key)) if page.items.is_empty() => {
                page.items.extend(self.shared.shown.lock().get(key).cloned());
            }
            (PrefixesFoldCase, Query::Prefix { prefix, .. }) => {
                let (begin, after, limit) = (Arc::from(""), None, NonZeroU32::MAX);
                let all = Query::Prefix {
                    prefix: begin,
                    after,
                    limit,
                };
                *page = self
                    .store
                    .clone()
                    .inspect(all)
                    .await
                    .expect("the memory store replies");
                let folded = |key: &LockKey| key.as_str().to_lowercase();
                page.items
                    .retain(|status| folded(&status.key).starts_with(&prefix.to_lowercase()));
            }
            (PagesRepeat, _) if page.next.is_some() && page.items.len() > 1 => {
                page.next = page.items.iter().nth_back(1).map(cursor);
            }
            (FullPagesAnnounceAnother, Query::Prefix { limit, .. }) => {
                let last = page.items.get(limit.get() as usize - 1);
                page.next = page.next.take().or(last.map(cursor));
            }
            _ => {}
        }
    }

    /// Renews a claim for the longest lease that the store allows, so that it outlives its own lease.
    async fn keep(&self, who: &ClaimRef, only: Phase) {
        let renewal = RenewRequest {
            claim: who.clone(),
            lease: self.store.profile().limits.max_lease,
            only,
            shorten_only: false,
            raise: None,
            downgrade: false,
        };
        self.store.clone().renew(Batch::from_iter([renewal])).await;
    }

    async fn show(&self, key: &LockKey) -> Option<LockStatus> {
        let page = self.store.clone().inspect(Query::Key(key.clone())).await;
        page.ok()?.items.pop()
    }
}

/// Changes the replies to one batch, as `bug` requires.
fn falsify_batch(bug: Bug, call: &mut [Exchange]) {
    let alive = |one: &Exchange| matches!(one.reply, Some(Ok(Reply::Renew(RenewReply::Alive { .. }))));
    match bug {
        BatchEndsAtTheFirstFailure => {
            let after = call.iter_mut().skip_while(|one| alive(one)).skip(1);
            let renewals = after.filter(|one| matches!(one.request, Request::Renew(_)));
            renewals.for_each(|one| one.reply = Some(Ok(missing())));
        }
        FailureSpreadsInItsBatch => {
            let after = call
                .iter_mut()
                .skip_while(|one| !matches!(one.reply, Some(Err(_))))
                .skip(1);
            after.for_each(|one| one.fail(BackendError::unsupported("an earlier element was refused")));
        }
        LongBatchesAreShuffled if call.len() > CHUNK => {
            let mut replies: Vec<_> = call.iter_mut().map(|one| one.reply.take()).collect();
            replies.rotate_left(CHUNK);
            call.iter_mut()
                .zip(replies)
                .for_each(|(one, reply)| one.reply = reply);
        }
        _ => {}
    }
}

fn missing() -> Reply {
    Reply::Renew(RenewReply::Gone(Loss::Missing))
}

fn permits(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { take, .. } => take.get(),
        _ => 0,
    }
}

fn run_from(first: u64, count: NonZeroU32) -> Option<TokenRange> {
    TokenRange::new(FencingToken::new(first)?, count)
}
