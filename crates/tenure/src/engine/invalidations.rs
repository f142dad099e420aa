//! Follows the store's invalidations, which are hints that claims may be gone, and renews these claims at once. An
//! invalidation decides nothing: guards, lingering claims and local hand-overs go on until the store answers a renewal.
//!
//! Only a renewal that is sent after an invalidation answers it. So an invalidation that comes while a renewal for an
//! earlier one of the same key is in flight causes one more, however many come; and a claim whose request was in flight when
//! an invalidation came is renewed as soon as it is granted.

use std::collections::HashMap;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_backend::{Invalidation, InvalidationQueue, Invalidations, Liveness, LockKey};

use super::hold::Hold;
use super::renewer::Renewer;

/// A client subscribes once it has held a claim for this long, so that a short program opens no connection for it.
const SUBSCRIBE_AFTER: Duration = Duration::from_millis(100);

/// Time over which the renewals of all claims are spread.
const SPREAD: Duration = Duration::from_secs(1);

/// The claims that a client holds, by their keys.
pub(crate) trait HeldClaims: Send + Sync {
    /// The claims held on this key. Makes the tasks that keep unlocked claims ask the store.
    fn on_key(&self, key: &LockKey) -> Vec<Arc<Hold>>;

    /// Makes the tasks that keep unlocked claims ask the store.
    fn check_kept(&self);
}

/// Follows the invalidations of one client.
pub(crate) struct Follower {
    renewer: Renewer,
    held: Arc<dyn HeldClaims>,
    /// The keys whose claims are being renewed because of an invalidation; true if another one has come meanwhile.
    keys: Mutex<HashMap<LockKey, bool>>,
    all: Mutex<AllClaims>,
}

/// Whether all claims are being renewed because of an invalidation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum AllClaims {
    #[default]
    AtRest,
    Renewing,
    /// Another invalidation has come meanwhile.
    Again,
}

impl Follower {
    pub(crate) fn new(renewer: Renewer, held: Arc<dyn HeldClaims>) -> Arc<Self> {
        Arc::new(Follower {
            renewer,
            held,
            keys: Mutex::default(),
            all: Mutex::default(),
        })
    }

    /// Follows the store's invalidations until the client's runtime ends.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.renewer.tasks().ended().cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(self: &Arc<Self>) {
        self.claim_held_for_a_while().await;
        let context = self.renewer.context();
        let Some(mut invalidations) = context.store.invalidations(context.id) else {
            return;
        };
        loop {
            let hints = next(&mut invalidations).await;
            if hints.is_empty() {
                return;
            }
            self.renewer.invalidated().note(context.now());
            if hints.contains(&Invalidation::All) {
                self.renew_all();
            } else {
                self.renew_keys(hints);
            }
        }
    }

    /// Waits until a claim was held for [`SUBSCRIBE_AFTER`].
    async fn claim_held_for_a_while(&self) {
        let invalidated = self.renewer.invalidated();
        loop {
            invalidated.until_a_claim_is_held().await;
            loop {
                // sleep: no event tells that a claim is still held after this time.
                tokio::time::sleep(SUBSCRIBE_AFTER).await;
                let (held, now) = (self.renewer.held(), self.renewer.context().now());
                if held.iter().any(|hold| now - hold.granted >= SUBSCRIBE_AFTER) {
                    return;
                }
                if held.is_empty() {
                    break;
                }
            }
            invalidated.no_claim_held();
            // A claim that was granted before this store has notified nobody.
            if !self.renewer.held().is_empty() {
                invalidated.claim_held();
            }
        }
    }

    /// Renews the claims on these keys together, except on keys whose claims are being renewed for that reason already:
    /// these are renewed once more afterwards.
    fn renew_keys(self: &Arc<Self>, hints: Vec<Invalidation>) {
        let mut keys = Vec::with_capacity(hints.len());
        let mut renewing = self.keys.lock();
        for hint in hints {
            if let Invalidation::Key(key) = hint {
                match renewing.get_mut(&key) {
                    Some(again) => *again = true,
                    None => {
                        renewing.insert(key.clone(), false);
                        keys.push(key);
                    }
                }
            }
        }
        drop(renewing);
        if keys.is_empty() {
            return;
        }
        let follower = self.clone();
        self.renewer.tasks().spawn(async move {
            while !keys.is_empty() {
                let claims = keys.iter().flat_map(|key| follower.held.on_key(key)).collect();
                follower.renew_batches(claims, Duration::ZERO).await;
                let mut renewing = follower.keys.lock();
                keys.retain(|key| {
                    let again = renewing.get_mut(key).is_some_and(mem::take);
                    if !again {
                        renewing.remove(key);
                    }
                    again
                });
            }
        });
    }

    /// Renews all claims, spread over a second. Does so once more if another invalidation comes meanwhile.
    fn renew_all(self: &Arc<Self>) {
        let mut all = self.all.lock();
        if *all != AllClaims::AtRest {
            *all = AllClaims::Again;
            return;
        }
        *all = AllClaims::Renewing;
        drop(all);
        // A store with sessions answers from what the session knows, so there is no load to spread.
        let spread = match self.renewer.context().store.profile().liveness {
            Liveness::Session => Duration::ZERO,
            _ => SPREAD,
        };
        let follower = self.clone();
        self.renewer.tasks().spawn(async move {
            let renewer = &follower.renewer;
            loop {
                follower.held.check_kept();
                follower.renew_batches(renewer.held(), spread).await;
                let mut all = follower.all.lock();
                if *all != AllClaims::Again || renewer.tasks().is_closed() {
                    *all = AllClaims::AtRest;
                    return;
                }
                *all = AllClaims::Renewing;
            }
        });
    }

    /// Renews claims in batches, whose starts are spread over a time. Returns when all were answered or given up.
    async fn renew_batches(&self, claims: Vec<Arc<Hold>>, spread: Duration) {
        let most = self.renewer.max_batch();
        let pause = spread / u32::try_from(claims.len().div_ceil(most).max(1)).unwrap_or(u32::MAX);
        let batches = claims.chunks(most).zip(0u32..).map(async |(batch, number)| {
            if !pause.is_zero() && number > 0 {
                tokio::select! {
                    // sleep: spreads the load of the renewals over time.
                    () = tokio::time::sleep(pause * number) => {}
                    () = self.renewer.tasks().closing().cancelled() => return,
                }
            }
            self.renewer.renew_now(batch).await;
        });
        join_all(batches).await;
    }
}

/// Waits for the next invalidation. Returns it with all that are ready too; returns none if the stream has ended.
async fn next(invalidations: &mut Invalidations) -> Vec<Invalidation> {
    poll_fn(|cx| {
        let mut ready = Vec::new();
        while ready.len() <= InvalidationQueue::MAX_KEYS {
            match Pin::new(&mut *invalidations).poll_next(cx) {
                Poll::Ready(Some(hint)) => ready.push(hint),
                Poll::Ready(None) => return Poll::Ready(ready),
                Poll::Pending if ready.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(ready)
    })
    .await
}
