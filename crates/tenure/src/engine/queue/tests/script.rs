//! Applies events to a [`Fixture`], each written as text, and checks Q1 and Q2 of `queue/mod.rs` after each event.
//!
//! - `locks`, `tries`, `queues`: a caller arrives, for example `a locks with linger`. The first caller is `a`;
//! - `a answered`, `a fails`: the caller's own call gets a reply or an error; `a adopted`: a task takes over that
//!   call; `a served`, `a refused`: the store grants the caller's queued claim, or refuses it for good; `a polls`,
//!   `a leaves`, `a unlocks`; `a downgrades` (the request is sent), `a downgraded` (the store confirms it);
//! - `one order`: from now on the store keeps all claims on the key in one order;
//! - `other client`: another client takes the key, if it is free, or releases it;
//! - `poller looks`, `poller checks` (whether to ask on), `poller granted` (the answer is on its way),
//!   `poller answered`, `poller fails`, `poller refused` (the store refuses the claim for good);
//! - `successor answered`, `successor lost`: the reply to a release that names a successor arrives, or is lost;
//! - `evicted` (the client notices), `evicted quietly` (it does not); `5 ms` pass; `linger over` (its timer fires);
//!   `closed`.

use tenure_backend::Mode;

use super::store::Holder;
use super::{Caller, CallerState, Fixture};
use crate::engine::queue::callers::CallerKind;
use crate::engine::queue::linger::LingerOver;

impl Fixture {
    /// Whether the event `verb` can happen to the caller with index `at`.
    fn can(&self, at: usize, verb: &str) -> bool {
        let Caller { kind, state, .. } = &self.callers[at];
        match state {
            CallerState::Calling => matches!(verb, "answered" | "fails" | "adopted" | "leaves"),
            CallerState::Adopted => matches!(verb, "answered" | "fails" | "polls" | "leaves"),
            CallerState::Left => matches!(verb, "answered" | "fails"),
            CallerState::Waiting if verb == "served" || verb == "refused" => *kind == CallerKind::Queues,
            CallerState::Waiting => matches!(verb, "polls" | "leaves"),
            CallerState::Holding(hold) => match verb {
                "downgrades" => hold.asked_mode == Mode::Write,
                "downgraded" => hold.is_downgrade_due(),
                _ => verb == "unlocks",
            },
            CallerState::Gone => false,
        }
    }

    /// The names of the callers to which the event `verb` can happen.
    pub(super) fn able(&self, verb: &str) -> Vec<char> {
        let callers = ('a'..).zip(0..self.callers.len());
        callers
            .filter(|(_, at)| self.can(*at, verb))
            .map(|(name, _)| name)
            .collect()
    }

    /// Applies the events of a script, separated by `; `, in order.
    pub(super) fn happen(&mut self, events: &str) {
        for event in events.split("; ") {
            self.notes.clear();
            self.happens(event);
            self.check();
        }
    }

    fn happens(&mut self, event: &str) {
        let words: Vec<&str> = event.split(' ').collect();
        match *words {
            ["other", "client"] => self.other_client(),
            ["poller", "looks"] => self.poller_looks(),
            ["poller", "checks"] => self.poller_checks(),
            ["poller", "granted"] => self.poller_granted(),
            ["poller", "answered"] => self.poller_answered(false),
            ["poller", "fails"] => self.poller_answered(true),
            ["poller", "refused"] => self.poller_refused(),
            ["successor", "answered"] => self.successor_answered(false),
            ["successor", "lost"] => self.successor_answered(true),
            ["evicted"] => self.evict(false),
            ["evicted", "quietly"] => self.evict(true),
            [ms, "ms"] => self.store.pass(ms.parse().expect("a number")),
            ["one", "order"] => self.has_one_order = true,
            ["linger", "over"] => drop(self.apply(LingerOver)),
            ["closed"] => self.close(),
            [_, "locks", ref option @ ..] => self.arrive(CallerKind::Waits, &option.join(" ")),
            [_, "tries", ref option @ ..] => self.arrive(CallerKind::Tries, &option.join(" ")),
            [_, "queues"] => self.arrive(CallerKind::Queues, "fair"),
            [name, verb] => self.happens_to(place(name.chars().next().unwrap_or_default()), verb),
            _ => panic!("no event is called {event}"),
        }
    }

    fn happens_to(&mut self, at: usize, verb: &str) {
        assert!(self.can(at, verb), "{at} {verb}: {:?}", self.callers[at].state);
        match verb {
            "answered" => self.answer(at, false),
            "fails" => self.answer(at, true),
            "adopted" => self.adopt(at),
            "served" => self.serve(at),
            "refused" => self.refuse(at),
            "polls" => self.poll(at),
            "leaves" => self.leave(at),
            "downgrades" => self.ask_downgrade(at),
            "downgraded" => self.downgraded(at),
            _ => self.unlock(at),
        }
    }

    fn check(&self) {
        let now = self.store.context.now();
        let is_held = |caller: &&Caller| match &caller.state {
            CallerState::Holding(hold) => now < hold.deadline() && !self.store.is_evicted(hold),
            _ => false,
        };
        let mut believed: Vec<Mode> = Vec::new();
        for caller in self.callers.iter().filter(is_held) {
            let CallerState::Holding(hold) = &caller.state else {
                continue;
            };
            // From the request for a downgrade on, the holder does not write.
            let mode = if hold.may_be_downgraded() {
                Mode::Read
            } else {
                hold.mode()
            };
            assert!(
                mode.admits(believed.iter().copied()),
                "Q2: {mode} beside {believed:?}"
            );
            believed.push(mode);
        }
        let is_calling = |caller: &&Caller| {
            let calls = matches!(caller.state, CallerState::Calling | CallerState::Adopted);
            calls && caller.kind == CallerKind::Waits && !caller.request.is_shared()
        };
        let asking = self.callers.iter().filter(is_calling).count() + usize::from(self.successor.is_some());
        assert!(asking <= 1 || self.queue.is_closed(), "Q1: {asking} ask");
    }

    /// Serves every remaining caller, then checks that the queue is empty. A caller that was polled before is polled
    /// again only after a wake-up.
    pub(super) fn finish(&mut self) {
        if matches!(self.store.holders[..], [Holder::OtherClient]) {
            self.happen("other client");
        }
        for round in 0..2_000 {
            for verb in ["answered", "polls", "served", "unlocks"] {
                for name in self.able(verb) {
                    let is_woken = round == 0 || self.callers[place(name)].is_woken;
                    if is_woken || verb != "polls" {
                        self.happen(&format!("{name} {verb}"));
                    }
                }
            }
            self.happen("successor answered; poller looks; poller answered; 1 ms; linger over");
            let is_gone = |caller: &Caller| matches!(caller.state, CallerState::Gone);
            if self.callers.iter().all(is_gone) && self.store.holders.is_empty() && self.successor.is_none() {
                break;
            }
        }
        for (caller, name) in self.callers.iter().zip('a'..) {
            let is_gone = matches!(caller.state, CallerState::Gone);
            assert!(is_gone, "Q5: {name} is forgotten: {:?}", caller.state);
        }
        assert!(self.store.holders.is_empty(), "Q3: a grant was never released");
        self.happen("100 ms; linger over; poller answered; poller looks");
        assert!(self.standing.is_empty(), "Q3: a claim stands for no waiter");
        assert!(!self.poller_runs, "Q7: a poller for no waiter");
        let is_at_rest = self.queue.is_closed() || self.queue.is_at_rest();
        assert!(is_at_rest, "Q7: {:?}", self.queue);
    }
}

/// The index of the caller with this name: 0 for `a`.
fn place(name: char) -> usize {
    ('a'..name).count()
}
