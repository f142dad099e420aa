//! A store of one key, for the tests of the queue: it grants, frees and evicts at once.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Fairness, FencingToken, Grant, HANDOVER_WINDOW, Instant, LockKey, Mode, TokenRange};
use tenure_testkit::ManualClock;

use crate::connect::MemoryStore;
use crate::engine::context::Context;
use crate::engine::hold::{Hold, HoldObserver};
use crate::engine::request::LockRequest;
use crate::settings::Settings;
use crate::telemetry::Meters;

pub(super) struct Store {
    clock: ManualClock,
    pub(super) context: Arc<Context>,
    pub(super) holders: Vec<Holder>,
    evicted: Vec<Arc<Hold>>,
    /// End of the cooldown after an eviction: until then the store grants the key to no claim.
    cooldown_until: Instant,
    next_token: u64,
}

/// Stands in for the queue of a hold. These tests report the ends of holds to the state machine themselves.
#[derive(Debug)]
struct Unobserved(Arc<Context>);

impl HoldObserver for Unobserved {
    fn context(&self) -> &Arc<Context> {
        &self.0
    }

    fn meters(&self) -> &Meters {
        self.0.meters()
    }

    fn deadline_passed(self: Arc<Self>, _: &Arc<Hold>) {}

    fn claim_gone(self: Arc<Self>, _: &Arc<Hold>) {}

    fn downgraded(self: Arc<Self>) {}
}

/// The client that holds the key.
pub(super) enum Holder {
    Ours(Arc<Hold>),
    OtherClient,
}

impl Store {
    pub(super) fn new() -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let backend = MemoryStore::new(Arc::new(clock.clone())).client(Arc::new(clock.clone()));
        Store {
            clock,
            context: Context::new(backend, Settings::default()),
            holders: Vec::new(),
            evicted: Vec::new(),
            cooldown_until: Instant::ORIGIN,
            next_token: 1,
        }
    }

    pub(super) fn pass(&self, ms: u32) {
        self.clock.advance(ms * Duration::from_millis(1));
    }

    /// Whether the holders admit a claim of `mode`, and no cooldown lasts. A write claim counts as a read claim from
    /// the request for its downgrade on.
    fn admits(&self, mode: Mode) -> bool {
        let held = self.holders.iter().map(|holder| match holder {
            Holder::Ours(hold) if hold.may_be_downgraded() => Mode::Read,
            Holder::Ours(hold) => hold.mode(),
            Holder::OtherClient => Mode::Exclusive,
        });
        mode.admits(held) && self.context.now() >= self.cooldown_until
    }

    /// Grants the key to a new claim for `request`, if the holders admit it.
    pub(super) fn grant(&mut self, request: &LockRequest, reserve: u32) -> Option<Arc<Hold>> {
        if !self.admits(request.mode) {
            return None;
        }
        let now = self.context.now();
        let key = LockKey::new("k").expect("a good key");
        let claim = request.claim(&self.context, &key, Fairness::Unfair, reserve);
        let first = FencingToken::new(self.next_token).expect("tokens begin at 1");
        self.next_token += u64::from(claim.grants.get());
        let grant = Grant::new(TokenRange::new(first, claim.grants), now, claim.lease);
        let terms = request.options.terms;
        let observer = Arc::new(Unobserved(self.context.clone()));
        let hold = Hold::new(observer, &claim, grant, terms, now).expect("the grant is fresh");
        self.holders.push(Holder::Ours(hold.clone()));
        Some(hold)
    }

    pub(super) fn free(&mut self, hold: &Arc<Hold>) {
        self.holders
            .retain(|holder| !matches!(holder, Holder::Ours(ours) if Arc::ptr_eq(ours, hold)));
    }

    /// If another client holds the key, releases it. Otherwise, if the key is free, another client gets it; returns
    /// its token.
    pub(super) fn other_client(&mut self) -> Option<u64> {
        if matches!(self.holders[..], [Holder::OtherClient]) {
            self.holders.clear();
            return None;
        }
        if !self.admits(Mode::Exclusive) {
            return None;
        }
        self.holders.push(Holder::OtherClient);
        self.next_token += 1;
        Some(self.next_token - 1)
    }

    /// Evicts the first claim of this client that holds the key, and returns it.
    pub(super) fn evict(&mut self) -> Option<Arc<Hold>> {
        let is_ours = |holder: &mut Holder| matches!(holder, Holder::Ours(_));
        let Some(Holder::Ours(hold)) = self.holders.extract_if(.., is_ours).next() else {
            return None;
        };
        self.cooldown_until = self.context.now() + HANDOVER_WINDOW;
        self.evicted.push(hold.clone());
        Some(hold)
    }

    pub(super) fn is_evicted(&self, hold: &Arc<Hold>) -> bool {
        self.evicted.iter().any(|evicted| Arc::ptr_eq(evicted, hold))
    }
}
