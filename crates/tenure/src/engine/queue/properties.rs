//! Random events against one queue, with a store of one key and callers that obey its replies.
//!
//! Length: the steps, the callers that they drive and the checks explain each other.
//!
//! After each event the invariants of `mod.rs` are checked. At the end every caller that waits is served, and nothing is left.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use proptest::prelude::*;
use tenure_backend::{Claim, Fairness, FencingToken, Grant, Instant, LockKey, Mode, PASS_WINDOW, TokenRun};
use tenure_testkit::ManualClock;

use super::callers::{
    Arrival, Arrived, Ask, CallAdopted, CallEnded, CallOutcome, CallReply, CallerKind, CallerLeft, PollReply,
    Polled,
};
use super::event::{
    Close, HoldEnded, HolderGone, IsWanted, LingerOver, PollGranted, PollerLooks, SuccessorAnswered,
};
use super::policy::PolicyLimits;
use super::state::{Effects, Event, Granted, KeyQueue, Look, PollerEffect, Rules, SuccessorRequest};
use super::waiter::WaiterId;
use crate::connect::MemoryStore;
use crate::engine::context::Context;
use crate::engine::hold::Hold;
use crate::engine::request::{LockRequest, Options};
use crate::error::{Error, LostCause};
use crate::settings::Settings;

const MS: Duration = Duration::from_millis(1);
const OFFER_WINDOW: Duration = Duration::from_millis(100);

/// What happens next. Numbers choose among what is possible at that moment.
#[derive(Clone, Debug)]
enum Step {
    Arrive {
        tries: bool,
        label: bool,
        lingers: bool,
    },
    /// A caller's own call is answered.
    Answer {
        which: usize,
        fails: bool,
    },
    /// A task adopts a caller's call.
    Adopt(usize),
    Poll(usize),
    Leave(usize),
    /// A holder unlocks.
    Unlock(usize),
    /// Another client takes the key, if it is free, or releases it.
    Other,
    PollerLooks,
    PollerAnswer {
        fails: bool,
    },
    SuccessorAnswer {
        lost: bool,
    },
    /// The store evicts the claim that holds. The client learns of it at once, or not at all.
    Evict {
        quietly: bool,
    },
    Pass(u64),
    LingerOver,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..8_usize;
    let step = prop_oneof![
        4 => (prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.5))
            .prop_map(|(tries, label, lingers)| Step::Arrive { tries, label, lingers }),
        4 => (which.clone(), prop::bool::weighted(0.1)).prop_map(|(which, fails)| Step::Answer { which, fails }),
        1 => which.clone().prop_map(Step::Adopt),
        4 => which.clone().prop_map(Step::Poll),
        1 => which.clone().prop_map(Step::Leave),
        4 => which.prop_map(Step::Unlock),
        1 => Just(Step::Other),
        3 => Just(Step::PollerLooks),
        3 => prop::bool::weighted(0.1).prop_map(|fails| Step::PollerAnswer { fails }),
        3 => prop::bool::weighted(0.1).prop_map(|lost| Step::SuccessorAnswer { lost }),
        2 => prop::bool::weighted(0.7).prop_map(|quietly| Step::Evict { quietly }),
        2 => (0..150_u64).prop_map(Step::Pass),
        2 => (0..12_u64).prop_map(Step::Pass),
        1 => Just(Step::LingerOver),
    ];
    prop::collection::vec(step, 1..120)
}

/// One caller, as its future sees itself.
struct Caller {
    id: WaiterId,
    request: LockRequest,
    kind: CallerKind,
    state: CallerState,
}

enum CallerState {
    /// Its own call is in flight. `adopted`: a task polls it. `left`: the caller was dropped.
    Calling {
        adopted: bool,
        left: bool,
    },
    Waiting,
    Holding(Arc<Hold>),
    Gone,
}

struct World {
    queue: KeyQueue,
    clock: ManualClock,
    context: Arc<Context>,
    key: LockKey,
    callers: Vec<Caller>,
    /// The poller's task runs; it asks for this request.
    poller_runs: bool,
    poller_asks: Option<(LockRequest, u32)>,
    /// A release with this successor is in flight.
    successor: Option<SuccessorRequest>,
    /// The claim that holds the key in the store.
    store: Option<Holder>,
    evicted: Vec<Arc<Hold>>,
    /// Until then the store grants nothing: a claim was evicted.
    barred_until: Instant,
    next_token: u64,
    last_token: u64,
    tokens: HashSet<u64>,
    plain: [LockRequest; 3],
}

enum Holder {
    Ours(Arc<Hold>),
    Other,
}

impl World {
    fn new(limits: PolicyLimits) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let backend = MemoryStore::new(Arc::new(clock.clone())).client(Arc::new(clock.clone()));
        let context = Context::new(backend, Settings::default());
        let rules = Rules {
            local_handover: true,
            offer_window: OFFER_WINDOW,
            policy: limits,
        };
        let request = |change: fn(&mut Options)| {
            let mut options = Options::new(&context.settings);
            change(&mut options);
            LockRequest {
                mode: Mode::Exclusive,
                options: Arc::new(options),
            }
        };
        World {
            queue: KeyQueue::new(Arc::new(rules), false),
            plain: [
                request(|_| {}),
                request(|options| options.label = "another".into()),
                request(|options| options.linger = 10 * MS),
            ],
            clock,
            context,
            key: LockKey::new("k").expect("a good key"),
            callers: Vec::new(),
            poller_runs: false,
            poller_asks: None,
            successor: None,
            store: None,
            evicted: Vec::new(),
            barred_until: Instant::ORIGIN,
            next_token: 1,
            last_token: 0,
            tokens: HashSet::new(),
        }
    }

    fn now(&self) -> Instant {
        self.context.now()
    }

    /// Applies an event, and does what its effects say.
    fn apply<E: Event>(&mut self, event: E) -> E::Reply {
        let now = self.now();
        let (reply, effects) = self.queue.on(now, event);
        self.carry_out(effects);
        reply
    }

    fn carry_out(&mut self, effects: Effects) {
        if effects.poller == Some(PollerEffect::Start) {
            assert!(!self.poller_runs, "Q5: one poller");
            self.poller_runs = true;
        }
        for order in effects.releases {
            self.release(&order.hold, order.successor);
        }
    }

    /// The store frees the key at once; it answers for the successor later.
    fn release(&mut self, hold: &Arc<Hold>, successor: Option<SuccessorRequest>) {
        self.free(hold);
        if successor.is_some() {
            assert!(self.successor.is_none(), "Q1: one successor at a time");
            self.successor = successor;
        }
    }

    fn free(&mut self, hold: &Arc<Hold>) {
        if matches!(&self.store, Some(Holder::Ours(ours)) if Arc::ptr_eq(ours, hold)) {
            self.store = None;
        }
    }

    /// The store grants a claim for that request, if the key is free.
    fn grant(&mut self, request: &LockRequest, reserve: u32) -> Option<Arc<Hold>> {
        let now = self.now();
        if self.store.is_some() || now < self.barred_until {
            return None;
        }
        let claim: Arc<Claim> = request.claim(&self.context, &self.key, Fairness::Unfair, reserve);
        let first = FencingToken::new(self.next_token).expect("tokens begin at 1");
        self.next_token += u64::from(claim.grants.get());
        let grant = Grant {
            tokens: TokenRun::new(first, claim.grants),
            held_from: now,
            lease: claim.lease,
            evidence: None,
        };
        let terms = request.options.terms;
        let hold = Hold::new(&self.context, None, claim, grant, terms, now).expect("the grant is fresh");
        self.store = Some(Holder::Ours(hold.clone()));
        Some(hold)
    }

    /// Callers in that state, by number.
    fn pick(&self, which: usize, is_meant: impl Fn(&CallerState) -> bool) -> Option<usize> {
        let meant: Vec<usize> = (0..self.callers.len())
            .filter(|at| is_meant(&self.callers[*at].state))
            .collect();
        (!meant.is_empty()).then(|| meant[which % meant.len()])
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive {
                tries,
                label,
                lingers,
            } => self.arrive(tries, label, lingers),
            Step::Answer { which, fails } => self.answer(which, fails),
            Step::Adopt(which) => self.adopt(which),
            Step::Poll(which) => {
                if let Some(at) = self.pick(which, |state| {
                    matches!(
                        state,
                        CallerState::Waiting
                            | CallerState::Calling {
                                adopted: true,
                                left: false
                            }
                    )
                }) {
                    self.poll(at);
                }
            }
            Step::Leave(which) => self.leave(which),
            Step::Unlock(which) => {
                if let Some(at) = self.pick(which, |state| matches!(state, CallerState::Holding(_))) {
                    self.unlock(at);
                }
            }
            Step::Other => match self.store {
                None if self.now() >= self.barred_until => self.store = Some(Holder::Other),
                Some(Holder::Other) => self.store = None,
                _ => {}
            },
            Step::PollerLooks => self.poller_looks(),
            Step::PollerAnswer { fails } => self.poller_answer(fails),
            Step::SuccessorAnswer { lost } => self.successor_answer(lost),
            Step::Evict { quietly } => {
                if let Some(Holder::Ours(hold)) = &self.store {
                    let hold = hold.clone();
                    self.store = None;
                    self.barred_until = self.now() + PASS_WINDOW;
                    if !quietly {
                        hold.lose(LostCause::Missing);
                        self.apply(HoldEnded(&hold));
                    }
                    self.evicted.push(hold);
                }
            }
            Step::Pass(ms) => self.clock.advance(u32::try_from(ms).expect("small") * MS),
            Step::LingerOver => {
                self.apply(LingerOver);
            }
        }
        self.check();
    }

    fn arrive(&mut self, tries: bool, label: bool, lingers: bool) {
        let request = match (label, lingers) {
            (true, _) => self.plain[1].clone(),
            (_, true) => self.plain[2].clone(),
            _ => self.plain[0].clone(),
        };
        let kind = if tries {
            CallerKind::Tries
        } else {
            CallerKind::Waits
        };
        let arrived = Arrived {
            request: &request,
            kind,
            waker: Waker::noop(),
        };
        let (id, state) = match self.apply(arrived) {
            Arrival::Ask(Ask { id, reserve, after }) => {
                assert!(reserve >= 1);
                if let Some(order) = after {
                    self.release(&order.hold, order.successor);
                }
                let state = CallerState::Calling {
                    adopted: false,
                    left: false,
                };
                (id, state)
            }
            Arrival::Held(hold, nth) => {
                self.offered(&hold, nth);
                self.callers.push(Caller {
                    id: unused(),
                    request,
                    kind,
                    state: CallerState::Holding(hold),
                });
                return;
            }
            Arrival::Wait(id) => {
                assert!(!tries, "a try never waits");
                (id, CallerState::Waiting)
            }
            Arrival::Busy => {
                assert!(tries, "only a try fails at once");
                return;
            }
            Arrival::Closed => return,
        };
        self.callers.push(Caller {
            id,
            request,
            kind,
            state,
        });
    }

    /// Q4: a grant that was handed over in memory has a greater token than every grant that a caller got before. A grant of
    /// the store may be overtaken on its way, after an eviction.
    fn offered(&mut self, hold: &Hold, nth: u32) {
        let token = hold.token(nth).expect("every grant has a token").get();
        let is_later = nth == 0 || token > self.last_token;
        assert!(is_later, "Q4: {token} after {}", self.last_token);
        assert!(self.tokens.insert(token), "Q4: {token} twice");
        self.last_token = self.last_token.max(token);
    }

    fn answer(&mut self, which: usize, fails: bool) {
        let is_calling = |state: &CallerState| matches!(state, CallerState::Calling { .. });
        let Some(at) = self.pick(which, is_calling) else {
            return;
        };
        let (id, request, kind) = {
            let caller = &self.callers[at];
            (caller.id, caller.request.clone(), caller.kind)
        };
        let CallerState::Calling { adopted, left } = self.callers[at].state else {
            return;
        };
        let granted = if fails { None } else { self.grant(&request, 4) };
        let outcome = match &granted {
            _ if fails => CallOutcome::Ended(Err(Error::Timeout)),
            Some(hold) => CallOutcome::Granted(hold.clone()),
            None if kind == CallerKind::Tries => CallOutcome::Ended(Ok(())),
            None => CallOutcome::Waits,
        };
        let waits = matches!(outcome, CallOutcome::Waits);
        let reply = self.apply(CallEnded {
            id,
            request: &request,
            outcome,
        });
        assert_eq!(reply == CallReply::Left, left, "a caller that left is known");
        self.callers[at].state = match granted {
            Some(hold) if left => {
                self.free(&hold);
                CallerState::Gone
            }
            // The queue offers it.
            Some(_) if adopted => CallerState::Waiting,
            Some(hold) => {
                self.offered(&hold, 0);
                CallerState::Holding(hold)
            }
            None if left => CallerState::Gone,
            None if waits || adopted => CallerState::Waiting,
            None => CallerState::Gone,
        };
    }

    fn adopt(&mut self, which: usize) {
        let is_own = |state: &CallerState| matches!(state, CallerState::Calling { adopted: false, .. });
        if let Some(at) = self.pick(which, is_own) {
            let caller = &mut self.callers[at];
            if let CallerState::Calling { adopted, .. } = &mut caller.state {
                *adopted = true;
            }
            let (id, request, kind) = (caller.id, caller.request.clone(), caller.kind);
            self.apply(CallAdopted {
                id,
                request: &request,
                kind,
                waker: None,
            });
        }
    }

    fn poll(&mut self, at: usize) {
        let id = self.callers[at].id;
        let polled = Polled {
            id,
            waker: Waker::noop(),
        };
        match self.apply(polled) {
            PollReply::Waiting => {}
            PollReply::Held(hold, nth) => {
                self.offered(&hold, nth);
                self.callers[at].state = CallerState::Holding(hold);
            }
            PollReply::Missed => {
                assert_eq!(
                    self.callers[at].kind,
                    CallerKind::Tries,
                    "a local waiter keeps its place"
                );
                self.callers[at].state = CallerState::Gone;
            }
            PollReply::Refused | PollReply::Failed(_) | PollReply::Closed => {
                self.callers[at].state = CallerState::Gone;
            }
        }
    }

    fn leave(&mut self, which: usize) {
        let can_leave = |state: &CallerState| {
            matches!(
                state,
                CallerState::Waiting | CallerState::Calling { left: false, .. }
            )
        };
        let Some(at) = self.pick(which, can_leave) else {
            return;
        };
        let caller = &mut self.callers[at];
        let is_calling = matches!(caller.state, CallerState::Calling { adopted: false, .. });
        match &mut caller.state {
            CallerState::Calling { left, .. } => *left = true,
            state => *state = CallerState::Gone,
        }
        let (id, request) = (caller.id, caller.request.clone());
        self.apply(CallerLeft {
            id,
            request: &request,
            is_calling,
        });
    }

    fn unlock(&mut self, at: usize) {
        if let CallerState::Holding(hold) = std::mem::replace(&mut self.callers[at].state, CallerState::Gone)
        {
            self.apply(HolderGone(&hold));
        }
    }

    fn poller_looks(&mut self) {
        if !self.poller_runs || self.poller_asks.is_some() {
            return;
        }
        match self.apply(PollerLooks) {
            Look::Exit => self.poller_runs = false,
            Look::Ask(SuccessorRequest { request, reserve }, _) => {
                self.poller_asks = Some((request, reserve))
            }
            Look::Rest(_) | Look::Verify(_) => {}
        }
    }

    fn poller_answer(&mut self, fails: bool) {
        let Some((request, reserve)) = self.poller_asks.clone() else {
            return;
        };
        if self.apply(IsWanted(&request)).is_none() {
            self.poller_asks = None;
            return;
        }
        if fails {
            // A transient error: the poller asks again.
            return;
        }
        if let Some(hold) = self.grant(&request, reserve) {
            self.poller_asks = None;
            let granted = Granted {
                hold: hold.clone(),
                request,
            };
            if !self.apply(PollGranted(granted)) {
                hold.depart();
                self.free(&hold);
            }
        }
    }

    fn successor_answer(&mut self, lost: bool) {
        let Some(SuccessorRequest { request, reserve }) = self.successor.take() else {
            return;
        };
        let hold = if lost { None } else { self.grant(&request, reserve) };
        let granted = hold.clone().map(|hold| Granted { hold, request });
        let was_refused = !lost && granted.is_none();
        let is_delivered = self.apply(SuccessorAnswered {
            others: Some(u32::from(was_refused)),
            was_refused,
            granted,
        });
        if let Some(hold) = hold.filter(|_| !is_delivered) {
            hold.depart();
            self.free(&hold);
        }
    }

    fn holding(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.callers.iter().filter_map(|caller| match &caller.state {
            CallerState::Holding(hold) => Some(hold),
            _ => None,
        })
    }

    fn check(&mut self) {
        let now = self.now();
        let evicted = |hold: &Arc<Hold>| self.evicted.iter().any(|evicted| Arc::ptr_eq(evicted, hold));
        let believed = self
            .holding()
            .filter(|hold| now < hold.deadline() && !evicted(hold))
            .count();
        assert!(believed <= 1, "Q2: {believed} callers hold the key");
        let calling = |caller: &&Caller| {
            let state = &caller.state;
            matches!(state, CallerState::Calling { left: false, .. }) && caller.kind == CallerKind::Waits
        };
        let asking = self.callers.iter().filter(calling).count() + usize::from(self.successor.is_some());
        assert!(asking <= 1, "Q1: {asking} ask");
    }

    /// Serves every caller that waits, and ends.
    fn finish(&mut self) {
        if matches!(self.store, Some(Holder::Other)) {
            self.store = None;
        }
        for _ in 0..2_000 {
            let is_gone = |caller: &Caller| matches!(caller.state, CallerState::Gone);
            if self.callers.iter().all(is_gone) && self.store.is_none() && self.successor.is_none() {
                break;
            }
            self.answer(0, false);
            self.successor_answer(false);
            self.poller_looks();
            self.poller_answer(false);
            for at in 0..self.callers.len() {
                match self.callers[at].state {
                    CallerState::Waiting
                    | CallerState::Calling {
                        adopted: true,
                        left: false,
                    } => self.poll(at),
                    CallerState::Holding(_) => self.unlock(at),
                    _ => {}
                }
            }
            self.clock.advance(MS);
            self.apply(LingerOver);
            self.check();
        }
        let waits = |caller: &&Caller| !matches!(caller.state, CallerState::Gone);
        assert_eq!(
            self.callers.iter().filter(waits).count(),
            0,
            "Q5: callers wait for ever"
        );
        assert!(self.store.is_none(), "Q3: a grant was never released");
        self.clock.advance(OFFER_WINDOW);
        self.apply(LingerOver);
        self.poller_answer(false);
        self.poller_looks();
        assert!(!self.poller_runs, "Q7: a poller for no waiter");
        assert!(self.queue.is_at_rest(), "Q7: {:?}", self.queue);
    }
}

fn unused() -> WaiterId {
    super::waiter::Places::default().last()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Q1 to Q5 and Q7.
    #[test]
    fn random_events_keep_the_invariants(steps in steps(), reports_waiters: bool, is_on_network: bool) {
        let mut world = World::new(PolicyLimits { reports_waiters, is_on_network });
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }

    /// Q3: closing returns every claim that is held or lingers.
    #[test]
    fn closing_returns_every_claim(steps in steps()) {
        let mut world = World::new(PolicyLimits { reports_waiters: true, is_on_network: true });
        for step in &steps {
            world.step(step);
        }
        let closed = world.apply(Close);
        let ours = match &world.store {
            Some(Holder::Ours(hold)) => Some(hold.clone()),
            _ => None,
        };
        if let Some(ours) = ours {
            let returned = closed.held.iter().chain(&closed.lingering).any(|hold| Arc::ptr_eq(hold, &ours));
            assert!(returned, "Q3: a claim was forgotten");
        }
        assert!(matches!(world.apply(PollerLooks), Look::Exit));
    }
}
