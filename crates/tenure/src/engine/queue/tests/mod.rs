//! A model of one queue, with its callers and a store of one key. Each method of [`Fixture`] for an event applies the
//! event, acts on its reply and effects, and records both as text. `script.rs` lists the events.

mod caller;
mod properties;
mod script;
mod store;
mod tables;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, LockKey, Mode};
use tokio::sync::Notify;

use self::caller::{Caller, CallerState, WakeFlag, request};
use self::store::{Holder, Store};
use crate::engine::hold::Hold;
use crate::engine::poller::Pause;
use crate::engine::queue::callers::{
    Arrival, Arrived, Ask, CallAdopted, CallEnded, CallOutcome, CallReply, CallerKind, CallerLeft, PollReply,
    Polled,
};
use crate::engine::queue::effects::{
    Effects, Granted, PollerEffect, ReleaseOrder, Standing, SuccessorRequest,
};
use crate::engine::queue::holders::{Downgraded, Exit, HoldEnded, HolderDone};
use crate::engine::queue::policy::PolicyLimits;
use crate::engine::queue::polls::{
    IsWanted, PollFailed, PollGranted, PollerLooks, PollerStep, QueueFailed, QueueGranted, SuccessorAnswered,
};
use crate::engine::queue::state::{Close, Event, KeyQueue, Rules};
use crate::engine::queue::waiter::Places;
use crate::engine::request::LockRequest;
use crate::engine::tasks::Releases;
use crate::error::{Error, LostCause};

const MS: Duration = Duration::from_millis(1);

struct Fixture {
    queue: KeyQueue,
    store: Store,
    callers: Vec<Caller>,
    releases: Releases,
    /// Text of the reply to the last event, then of the event's effects.
    notes: Vec<String>,
    poller_runs: bool,
    /// The request that the poller (the task that polls the store for the waiters) sends at present.
    poller_asks: Option<SuccessorRequest>,
    /// The store's grant for that request, whose reply has not reached the poller yet.
    poller_granted: Option<Arc<Hold>>,
    /// The next claim (successor) that a release in flight names.
    successor: Option<SuccessorRequest>,
    /// Whether the store keeps all its claims in one order. Then a caller's claim stands in the store's queue if it must
    /// wait, and no other claim of this client is granted before it.
    has_one_order: bool,
    standing: Vec<Arc<Claim>>,
    /// All tokens that callers got.
    tokens: HashSet<u64>,
    /// The tokens that callers and other clients got, and the modes of these grants.
    granted: Vec<(Mode, u64)>,
}

impl Fixture {
    fn new(policy: PolicyLimits) -> Self {
        let releases = Releases::default();
        let rules = Rules {
            releases: releases.clone(),
            local_handover: true,
            offer_window: 100 * MS,
            policy,
        };
        Fixture {
            queue: KeyQueue::new(Arc::new(rules), false),
            releases,
            store: Store::new(),
            callers: Vec::new(),
            notes: Vec::new(),
            poller_runs: false,
            poller_asks: None,
            poller_granted: None,
            successor: None,
            has_one_order: false,
            standing: Vec::new(),
            tokens: HashSet::new(),
            granted: Vec::new(),
        }
    }

    /// Records the reply of an event, before the event's effects.
    fn reply(&mut self, reply: impl Into<String>) {
        self.notes.insert(0, reply.into());
    }

    fn apply<E: Event>(&mut self, event: E) -> E::Reply {
        let now = self.store.context.now();
        let (reply, effects) = self.queue.on(now, event);
        self.carry_out(effects);
        reply
    }

    fn carry_out(&mut self, effects: Effects) {
        for order in effects.releases {
            self.release(order);
        }
        if effects.linger_until.is_some() {
            self.notes.push("sets a timer".into());
        }
        effects.wakes.into_iter().for_each(Waker::wake);
        for (caller, name) in self.callers.iter_mut().zip('a'..) {
            if caller.flag.0.swap(false, Ordering::Relaxed) {
                caller.is_woken = true;
                self.notes.push(format!("wakes {name}"));
            }
        }
        if let Some(claim) = effects.withdraw {
            self.notes.push("withdraws a claim".into());
            self.leaves_store(&claim);
        }
        match effects.poller {
            Some(PollerEffect::Start) => {
                assert!(!self.poller_runs, "Q1: two pollers");
                self.poller_runs = true;
                self.notes.push("starts the poller".into());
            }
            Some(PollerEffect::Notify) => self.notes.push("notifies the poller".into()),
            None => {}
        }
    }

    /// Releases a claim. The store frees the key at once; a later event answers about the successor.
    fn release(&mut self, order: ReleaseOrder) {
        let ReleaseOrder {
            hold,
            successor,
            token,
        } = order;
        let counted = self.releases.in_flight();
        drop(token);
        assert_eq!(
            self.releases.in_flight() + 1,
            counted,
            "Q3: a closing client does not wait for a release"
        );
        self.store.free(&hold);
        match &successor {
            Some(SuccessorRequest { reserve, .. }) => {
                assert!(self.successor.is_none(), "Q1: two releases with a successor");
                self.notes.push(format!("releases, and asks for {reserve}"));
                self.successor = successor;
            }
            None => self.notes.push("releases".into()),
        }
    }

    /// Releases a grant, unless a caller has it.
    fn reject_unless(&mut self, has_caller: bool, hold: &Arc<Hold>) {
        if !has_caller {
            hold.depart();
            self.store.free(hold);
            self.notes.push("rejects the grant".into());
        }
    }

    fn arrive(&mut self, kind: CallerKind, option: &str) {
        let request = request(&self.store.context.settings, option);
        let flag = Arc::new(WakeFlag::default());
        let waker = Waker::from(flag.clone());
        let arrival = self.apply(Arrived {
            request: &request,
            kind,
            waker: &waker,
        });
        let no_place = Places::default().last();
        let (id, reserve, state) = match arrival {
            Arrival::Ask(Ask { id, reserve, after }) => {
                if let Some(order) = after {
                    self.release(order);
                }
                self.reply(format!("asks for {reserve}"));
                (id, reserve, CallerState::Calling)
            }
            Arrival::Wait(id) => {
                assert_eq!(kind, CallerKind::Waits, "only a waiting caller waits");
                self.reply("waits");
                (id, 0, CallerState::Waiting)
            }
            Arrival::Busy => {
                assert_eq!(kind, CallerKind::Tries, "only a try fails at once");
                (no_place, 0, self.ends("busy"))
            }
            Arrival::Held(hold, nth) => (no_place, 0, self.holds(hold, nth)),
            Arrival::Closed => (no_place, 0, self.ends("closed")),
        };
        self.callers.push(Caller {
            id,
            request,
            kind,
            reserve,
            state,
            flag,
            is_woken: false,
        });
    }

    fn ends(&mut self, how: &str) -> CallerState {
        self.reply(how);
        CallerState::Gone
    }

    /// Gives a caller its grant.
    ///
    /// Q4: a grant that was handed over in memory has a greater token than each conflicting grant that a caller got
    /// before. A grant by the store may have a smaller one: if its claim is evicted before the caller gets the grant,
    /// the store grants the key again, and the other caller may get that grant first.
    fn holds(&mut self, hold: Arc<Hold>, nth: u32) -> CallerState {
        let token = hold.token(nth).expect("every grant has a token").get();
        let mode = hold.asked_mode;
        let conflicting = self.granted.iter().filter(|(other, _)| !mode.admits([*other]));
        let last = conflicting.map(|(_, token)| *token).max().unwrap_or(0);
        assert!(nth == 0 || token > last, "Q4: {token} after {last}");
        assert!(self.tokens.insert(token), "Q4: {token} twice");
        self.granted.push((mode, token));
        self.reply(format!("holds {token}"));
        CallerState::Holding(hold)
    }

    /// Answers a caller's own call, with an error if `fails`.
    fn answer(&mut self, at: usize, fails: bool) {
        let caller = &self.callers[at];
        let (id, kind, request) = (caller.id, caller.kind, caller.request.clone());
        let reserve = caller.reserve;
        let granted = if fails {
            None
        } else {
            self.grant(&request, reserve)
        };
        let outcome = match &granted {
            _ if fails => CallOutcome::Ended(Err(Error::Timeout)),
            Some(hold) => CallOutcome::Granted(hold.clone()),
            None => match kind {
                CallerKind::Waits => CallOutcome::Waits(self.place(&request)),
                CallerKind::Tries => CallOutcome::Ended(Ok(())),
                CallerKind::Queues => CallOutcome::Queued(Arc::new(Notify::new())),
            },
        };
        let waits = matches!(outcome, CallOutcome::Waits(_) | CallOutcome::Queued(_));
        let placed = match &outcome {
            CallOutcome::Waits(placed) => placed.clone(),
            _ => None,
        };
        // As in the store, the claim stands before the client has the answer.
        self.standing.extend(placed.clone());
        let reply = self.apply(CallEnded {
            id,
            request: &request,
            outcome,
        });
        if let Some(placed) = placed.filter(|_| reply != CallReply::Accepted) {
            self.leaves_store(&placed);
        }
        let state = &self.callers[at].state;
        let is_left = matches!(state, CallerState::Left);
        let is_adopted = matches!(state, CallerState::Adopted);
        let is_known = self.queue.is_closed() || (reply == CallReply::Left) == is_left;
        assert!(is_known, "Q3: {reply:?} to {state:?}");
        self.callers[at].state = match granted {
            granted if reply != CallReply::Accepted => {
                granted.iter().for_each(|hold| self.reject_unless(false, hold));
                self.ends("too late")
            }
            // A task has taken over the call, so the caller gets the outcome at its next poll.
            _ if is_adopted => CallerState::Waiting,
            Some(hold) => self.holds(hold, 0),
            None if waits => {
                // From now on the caller polls the queue instead of its call.
                self.callers[at].state = CallerState::Waiting;
                return self.poll(at);
            }
            None => self.ends(if fails { "fails" } else { "refused" }),
        };
    }

    fn adopt(&mut self, at: usize) {
        let caller = &mut self.callers[at];
        caller.state = CallerState::Adopted;
        let (id, kind, request) = (caller.id, caller.kind, caller.request.clone());
        let waker = caller.waker();
        self.apply(CallAdopted {
            id,
            request: &request,
            kind,
            waker: Some(waker),
        });
    }

    fn poll(&mut self, at: usize) {
        let caller = &mut self.callers[at];
        caller.is_woken = false;
        let (id, kind, waker) = (caller.id, caller.kind, caller.waker());
        let polled = self.apply(Polled { id, waker: &waker });
        self.callers[at].state = match polled {
            PollReply::Waiting => return self.reply("waits"),
            PollReply::Held(hold, nth) => self.holds(hold, nth),
            PollReply::Ask(Ask { reserve, .. }) => {
                self.callers[at].reserve = reserve;
                self.reply(format!("asks for {reserve}"));
                CallerState::Calling
            }
            PollReply::Missed => {
                assert_ne!(kind, CallerKind::Waits, "a local waiter keeps its place");
                self.ends("missed")
            }
            PollReply::Refused => self.ends("refused"),
            PollReply::Failed(_) => self.ends("fails"),
            PollReply::Closed => self.ends("closed"),
        };
    }

    fn leave(&mut self, at: usize) {
        let caller = &mut self.callers[at];
        let is_calling = matches!(caller.state, CallerState::Calling);
        caller.state = match caller.state {
            CallerState::Calling | CallerState::Adopted => CallerState::Left,
            _ => CallerState::Gone,
        };
        let (id, request) = (caller.id, caller.request.clone());
        self.apply(CallerLeft {
            id,
            request: &request,
            is_calling,
        });
    }

    fn unlock(&mut self, at: usize) {
        let state = std::mem::replace(&mut self.callers[at].state, CallerState::Gone);
        let CallerState::Holding(hold) = state else {
            panic!("only a holder unlocks: {state:?}");
        };
        match self.apply(HolderDone(&hold)) {
            Exit::HandedOver => self.reply("hands over"),
            Exit::Lingers => self.reply("lingers"),
            Exit::Shared => self.reply("leaves others"),
            Exit::Gone => self.reply("gone"),
            Exit::Release(order) => self.release(order),
        }
    }

    fn leaves_store(&mut self, claim: &Arc<Claim>) {
        let place = self
            .standing
            .iter()
            .position(|standing| Arc::ptr_eq(standing, claim));
        let place = place.expect("Q3: only a claim that stands is asked for again, or withdrawn");
        self.standing.remove(place);
    }

    /// The store's answer to a new claim of this client: no grant while a claim stands before it.
    fn grant(&mut self, request: &LockRequest, reserve: u32) -> Option<Arc<Hold>> {
        if !self.standing.is_empty() {
            return None;
        }
        self.store.grant(request, reserve)
    }

    /// Places the claim of a caller that must wait, if the store has one order.
    fn place(&self, request: &LockRequest) -> Option<Arc<Claim>> {
        let key = LockKey::new("k").expect("a good key");
        let is_placed = self.has_one_order && !request.is_shared();
        is_placed.then(|| request.claim(&self.store.context, &key, Fairness::Fifo, 1))
    }

    /// Grants the claim of a fair caller in the store's queue.
    fn serve(&mut self, at: usize) {
        let caller = &self.callers[at];
        let (id, request) = (caller.id, caller.request.clone());
        if let Some(hold) = self.grant(&request, 1) {
            let granted = granted(&hold, request);
            let is_delivered = self.apply(QueueGranted { id, granted });
            self.reject_unless(is_delivered, &hold);
        }
    }

    /// Refuses for good the claim of a fair caller in the store's queue.
    fn refuse(&mut self, at: usize) {
        let (id, error) = (self.callers[at].id, Error::Timeout);
        self.apply(QueueFailed { id, error });
    }

    fn other_client(&mut self) {
        let token = self.store.other_client();
        self.granted.extend(token.map(|token| (Mode::Exclusive, token)));
    }

    fn poller_looks(&mut self) {
        if !self.poller_runs || self.poller_asks.is_some() {
            return self.reply("nothing");
        }
        match self.apply(PollerLooks) {
            PollerStep::Exit => {
                self.poller_runs = false;
                self.reply("ends");
            }
            PollerStep::Ask(asked, pause) => self.poller_begins(asked, pause, "asks"),
            PollerStep::AskAgain(Standing { claim, request }) => {
                self.leaves_store(&claim);
                let reserve = claim.grants.get();
                self.poller_begins(
                    SuccessorRequest { request, reserve },
                    Pause::AT_ONCE,
                    "asks again",
                );
            }
            PollerStep::Rest(Duration::MAX) => self.reply("sleeps"),
            PollerStep::Rest(time) => self.reply(format!("rests {time:?}")),
            PollerStep::Verify(_) => self.reply("verifies"),
        }
    }

    fn poller_begins(&mut self, asked: SuccessorRequest, pause: Pause, verb: &str) {
        let what = format!("{verb} for {}", asked.reserve);
        self.poller_asks = Some(asked);
        self.reply(match pause {
            Pause::UntilWakeUp { time, .. } if time.is_zero() => what,
            Pause::UntilWakeUp { time, .. } => format!("{what} in {time:?}, or when woken"),
            Pause::Fixed(time) => format!("{what} in {time:?}"),
        });
    }

    /// The poller checks whether a waiter still wants the claim that the poller asks for.
    fn poller_checks(&mut self) {
        let asks = self.poller_asks.clone();
        let is_wanted = asks.is_some_and(|asks| self.apply(IsWanted(&asks.request)).is_some());
        self.reply(if is_wanted { "wanted" } else { "unwanted" });
    }

    /// Grants the poller's claim. The poller gets the answer later.
    fn poller_granted(&mut self) {
        if let Some(SuccessorRequest { request, reserve }) = self.poller_asks.clone()
            && self.poller_granted.is_none()
        {
            self.poller_granted = self.grant(&request, reserve);
        }
    }

    /// Gives the poller the store's answer, or a transient error if `fails`.
    fn poller_answered(&mut self, fails: bool) {
        let Some(SuccessorRequest { request, .. }) = self.poller_asks.clone() else {
            return self.reply("nothing");
        };
        if !fails {
            self.poller_granted();
        }
        if let Some(hold) = self.poller_granted.take() {
            self.poller_asks = None;
            let is_delivered = self.apply(PollGranted(granted(&hold, request)));
            self.reject_unless(is_delivered, &hold);
        } else if self.apply(IsWanted(&request)).is_some() {
            self.reply("asks again");
        } else {
            self.poller_asks = None;
            self.reply("not wanted");
        }
    }

    /// Refuses the poller's claim for good.
    fn poller_refused(&mut self) {
        let asked = self.poller_asks.take().expect("the poller asks");
        self.apply(PollFailed {
            request: &asked.request,
            error: Error::Timeout,
        });
    }

    fn successor_answered(&mut self, is_lost: bool) {
        let Some(SuccessorRequest { request, reserve }) = self.successor.take() else {
            return self.reply("nothing");
        };
        let hold = (!is_lost).then(|| self.grant(&request, reserve)).flatten();
        let granted = hold.as_ref().map(|hold| granted(hold, request));
        let was_refused = !is_lost && granted.is_none();
        let is_delivered = self.apply(SuccessorAnswered {
            others: Some(u32::from(was_refused)),
            was_refused,
            granted,
        });
        if let Some(hold) = hold {
            self.reject_unless(is_delivered, &hold);
        }
    }

    /// Sends the downgrade of a caller's claim.
    fn ask_downgrade(&mut self, at: usize) {
        if let CallerState::Holding(hold) = &self.callers[at].state {
            hold.ask_downgrade();
        }
    }

    /// The store confirms the downgrade of a caller's claim.
    fn downgraded(&mut self, at: usize) {
        if let CallerState::Holding(hold) = &self.callers[at].state {
            let hold = hold.clone();
            assert!(hold.downgraded(), "it was asked for");
            self.apply(Downgraded);
        }
    }

    /// Evicts a claim that holds the key. With `quietly` the client does not notice.
    fn evict(&mut self, quietly: bool) {
        if let Some(hold) = self.store.evict()
            && !quietly
        {
            hold.lose(LostCause::Missing);
            self.apply(HoldEnded(&hold));
        }
    }

    fn close(&mut self) {
        let closed = self.apply(Close);
        let lingering = closed.iter().filter(|holder| holder.lingers()).count();
        let held = closed.len() - lingering;
        for hold in closed.iter().map(|holder| &holder.hold) {
            hold.lose(LostCause::Closed);
            hold.depart();
            self.store.free(hold);
        }
        self.reply(format!("returns {held} held and {lingering} lingering"));
        if let ([Holder::Ours(hold), ..], None) = (&self.store.holders[..], &self.poller_granted) {
            panic!("Q3: closing does not return {:?}", hold.at);
        }
    }
}

fn granted(hold: &Arc<Hold>, request: LockRequest) -> Granted {
    let hold = hold.clone();
    Granted { hold, request }
}
