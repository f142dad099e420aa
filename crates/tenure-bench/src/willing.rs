//! A store that costs nothing: it grants whatever is asked for and renews it. What is left is the engine's.

use std::sync::Arc;

use futures_util::stream;
use tenure::FencingToken;
use tenure::backend::{
    Backend, Batch, Call, Claim, Clock, Departure, Each, Finding, Grant, Instant, LockStatus, Page, Profile,
    Query, Released, Renewal, Renewed, Standing, SystemClock, TokenRun, Wakes,
};

/// Excludes nobody and remembers nothing. It says of itself what the store says whose profile it has.
#[derive(Debug)]
pub(crate) struct Willing {
    profile: Profile,
    clock: Arc<dyn Clock>,
}

impl Willing {
    pub(crate) fn like(profile: &Profile) -> Arc<Self> {
        Arc::new(Willing {
            profile: profile.clone(),
            clock: Arc::new(SystemClock),
        })
    }
}

impl Backend for Willing {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, _: Instant) -> Call<Standing> {
        let held_from = self.clock.now();
        Call::ready(Ok(Standing::Granted(Grant {
            tokens: FencingToken::new(1).and_then(|first| TokenRun::new(first, claim.grants)),
            held_from,
            lease: claim.lease,
            evidence: None,
        })))
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let held_from = self.clock.now();
        let alive = batch.iter().map(|renewal| Renewed::Alive {
            held_from,
            lease: renewal.lease,
        });
        Each::ready(alive.collect())
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        let done = batch.iter().map(|_| Released::Done {
            freed: Batch::new(),
            others: Some(0),
            heir: None,
        });
        Each::ready(done.collect())
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        Call::ready(Ok(Wakes::new(stream::pending())))
    }

    fn inspect(self: Arc<Self>, _: Query) -> Call<Page<LockStatus>> {
        Call::ready(Ok(Page {
            items: Vec::new(),
            next: None,
        }))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::ready(Ok(Vec::new()))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        Call::ready(Ok(()))
    }
}
