//! Checks histories for violations of the rules in `violation.rs`, in one sweep over the events sorted by time.
//!
//! An attempt *holds* its key from its `acquired` event up to its `release` event, its `lost` event or its local
//! deadline, whichever comes first. The end is exclusive: another attempt may be granted at that very time. From its
//! `downgrade` event on, a writer holds its key as a reader. The checker concludes nothing from an attempt with an
//! unknown outcome. For mutual exclusion the check is complete: it reports a history if and only if attempts hold a
//! key together that [`Mode::admits`] does not allow together.

use std::collections::{BTreeSet, HashMap};

use tenure_backend::{FencingToken, Instant, LockKey, Mode};

use crate::history::{Event, EventKind};
use crate::holders::{CurrentHolders, Tokens};
use crate::violation::{Rule, Summary, Violation};

/// Maximum number of violations reported. The first few are enough to find a bug.
const MAX_VIOLATIONS: usize = 100;

/// Checks a whole history. Its events may be given in any order.
///
/// # Errors
/// Returns the violations found, up to 100, each with the events that show it.
pub fn check(history: impl IntoIterator<Item = Event>) -> Result<Summary, Vec<Violation>> {
    let mut events: Vec<Event> = history.into_iter().collect();
    let invoked = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Invoked { .. }));
    let begun: HashMap<u64, Instant> = invoked.map(|event| (event.attempt, event.at)).collect();
    // Grants at the same time are sorted by the start of their attempts, as in a queue.
    events.sort_by_cached_key(|event| {
        (
            event.at,
            sort_rank(&event.kind),
            begun.get(&event.attempt).copied(),
        )
    });
    let mut checker = Checker::default();
    for event in &events {
        checker.take(event);
    }
    if checker.violations.is_empty() {
        Ok(checker.summary)
    } else {
        Err(checker.violations)
    }
}

/// Order of events with the same time: begins of attempts, ends, `queued`, grants, observations. So one
/// attempt may end at the very time at which another is granted.
fn sort_rank(kind: &EventKind) -> u8 {
    match kind {
        EventKind::Invoked { .. } => 0,
        EventKind::ReleaseInvoked
        | EventKind::Released
        | EventKind::DowngradeInvoked
        | EventKind::Lost
        | EventKind::Failed
        | EventKind::Unknown => 1,
        EventKind::Queued => 2,
        EventKind::Acquired { .. } => 3,
        EventKind::Sampled { .. } | EventKind::Accepted { .. } | EventKind::Seen { .. } => 4,
    }
}

/// State of the sweep, which takes all events in the order of their times.
#[derive(Debug, Default)]
struct Checker {
    attempts: HashMap<u64, AttemptState>,
    keys: HashMap<LockKey, KeyHistory>,
    summary: Summary,
    violations: Vec<Violation>,
}

#[derive(Debug)]
struct AttemptState {
    key: LockKey,
    owner: u64,
    mode: Mode,
    invoked: Event,
    queued: Option<Instant>,
    acquired: Option<Event>,
    /// End of the attempt's holding period: release, loss or deadline.
    until: Option<Instant>,
    /// The `lost` event, if there was one.
    ended: Option<Event>,
    /// Whether the attempt has neither failed nor been released.
    open: bool,
}

impl AttemptState {
    fn events(&self) -> Vec<Event> {
        let told = [Some(&self.invoked), self.acquired.as_ref(), self.ended.as_ref()];
        told.into_iter().flatten().cloned().collect()
    }
}

#[derive(Debug, Default)]
struct KeyHistory {
    holders: CurrentHolders,
    /// Attempts that hold the key, sorted by their local deadlines.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Attempts that wait in the queue, sorted by the times of their `queued` events.
    queue: BTreeSet<(Instant, u64)>,
    tokens: Tokens,
    /// Newest token that the guarded resource accepted.
    accepted: Option<(FencingToken, Event)>,
    /// Number of attempts that have neither failed nor been released.
    open: u32,
}

impl Checker {
    fn take(&mut self, event: &Event) {
        if let EventKind::Invoked { key, owner, mode } = &event.kind {
            return self.invoked(event, key, *owner, *mode);
        }
        let Some(attempt) = self.attempts.get(&event.attempt) else {
            return self.report(
                Rule::History,
                "event of an attempt that never began",
                vec![event.clone()],
            );
        };
        self.expire(&attempt.key.clone(), event.at);
        match &event.kind {
            EventKind::Invoked { .. } => {}
            EventKind::Queued => self.queued(event),
            EventKind::Acquired { token, until } => self.acquired(event, *token, *until),
            EventKind::Unknown => self.leave_queue(event.attempt),
            EventKind::Failed | EventKind::Released => self.closed(event),
            EventKind::ReleaseInvoked => self.stop_holding(event, false),
            EventKind::DowngradeInvoked => self.downgraded(event),
            EventKind::Lost => self.stop_holding(event, true),
            EventKind::Sampled { since, held: true } => self.sampled(event, *since),
            EventKind::Sampled { held: false, .. } => {}
            EventKind::Accepted { token } => self.accepted(event, *token),
            EventKind::Seen { holders, waiters } => self.seen(event, *holders, *waiters),
        }
    }

    fn invoked(&mut self, event: &Event, key: &LockKey, owner: u64, mode: Mode) {
        if let Some(before) = self.attempts.get(&event.attempt) {
            let events = [before.events(), vec![event.clone()]].concat();
            return self.report(Rule::History, "an attempt that began twice", events);
        }
        let attempt = AttemptState {
            key: key.clone(),
            owner,
            mode,
            invoked: event.clone(),
            queued: None,
            acquired: None,
            until: None,
            ended: None,
            open: true,
        };
        self.attempts.insert(event.attempt, attempt);
        self.summary.attempts += 1;
        self.keys.entry(key.clone()).or_default().open += 1;
    }

    /// Ends the holding periods on a key whose local deadlines have passed.
    fn expire(&mut self, key: &LockKey, now: Instant) {
        let Some(one) = self.keys.get_mut(key) else { return };
        while let Some(&(deadline, number)) = one.deadlines.first() {
            if deadline > now {
                break;
            }
            one.deadlines.pop_first();
            let attempt = self.attempts.get(&number);
            if let Some((attempt, granted)) = attempt.and_then(|a| Some((a, a.acquired.as_ref()?))) {
                one.holders.remove(attempt.mode, granted.at, number);
            }
        }
    }

    fn queued(&mut self, event: &Event) {
        self.leave_queue(event.attempt);
        let (attempt, one) = self.state_of(event.attempt);
        if attempt.acquired.is_none() && attempt.open {
            attempt.queued = Some(event.at);
            one.queue.insert((event.at, event.attempt));
        }
    }

    fn leave_queue(&mut self, number: u64) {
        let (attempt, one) = self.state_of(number);
        if let Some(since) = attempt.queued.take() {
            one.queue.remove(&(since, number));
        }
    }

    fn acquired(&mut self, event: &Event, token: Option<FencingToken>, until: Instant) {
        self.leave_queue(event.attempt);
        let (attempt, _) = self.state_of(event.attempt);
        if attempt.acquired.is_some() {
            let events = [attempt.events(), vec![event.clone()]].concat();
            return self.report(Rule::History, "an attempt that was granted twice", events);
        }
        attempt.acquired = Some(event.clone());
        let until = attempt.until.map_or(until, |ended| ended.min(until));
        attempt.until = Some(until);
        let (mode, invoked) = (attempt.mode, attempt.invoked.at);
        self.summary.acquired += 1;
        self.check_order(event, mode, invoked);
        if let Some(token) = token {
            self.check_token(event, mode, invoked, token);
        }
        if until > event.at {
            self.start_holding(event, mode, until);
        }
    }

    /// Starts the holding period of a granted attempt. Reports V1 if a conflicting attempt holds the key.
    fn start_holding(&mut self, event: &Event, mode: Mode, until: Instant) {
        let (_, one) = self.state_of(event.attempt);
        let witness = one.holders.conflicting(mode);
        one.holders.insert(mode, event.at, event.attempt);
        one.deadlines.insert((until, event.attempt));
        if let Some(other) = witness {
            let description = format!("granted ({mode}) while a conflicting attempt holds the key");
            self.report_pair(Rule::V1, description, other, event);
        }
    }

    /// Checks L3: the granted attempt overtakes no conflicting one. An attempt is overtaken if it still waits, and had
    /// queued before the granted one began.
    fn check_order(&mut self, event: &Event, mode: Mode, invoked: Instant) {
        let (_, one) = self.state_of(event.attempt);
        let ahead: Vec<u64> = one
            .queue
            .range(..(invoked, 0))
            .map(|&(_, number)| number)
            .collect();
        let conflicts = |number: &u64| self.attempts.get(number).is_some_and(|a| !mode.admits([a.mode]));
        if let Some(overtaken) = ahead.into_iter().find(conflicts) {
            let description = "granted before a conflicting attempt that queued earlier";
            self.report_pair(Rule::L3, description, overtaken, event);
        }
    }

    /// Checks V3: the token is greater than all that conflicting attempts received before this one began, and no
    /// conflicting attempt has the same token.
    fn check_token(&mut self, event: &Event, mode: Mode, invoked: Instant, token: FencingToken) {
        let (_, one) = self.state_of(event.attempt);
        let older = one.tokens.conflicting_grant(mode, invoked, token);
        let duplicate = one.tokens.record(mode, event.at, token, event.attempt);
        if let Some(other) = older {
            let description = format!("token {token} was issued after an equal or greater one");
            self.report_pair(Rule::V3, description, other, event);
        } else if let Some(other) = duplicate {
            self.report_pair(Rule::V3, format!("token {token} was issued twice"), other, event);
        }
    }

    /// Turns a writer into a reader.
    fn downgraded(&mut self, event: &Event) {
        let (attempt, one) = self.state_of(event.attempt);
        let Some(granted) = attempt.acquired.as_ref().filter(|_| attempt.mode == Mode::Write) else {
            let description = "a downgrade of an attempt that was not granted the write lock";
            return self.report(Rule::History, description, vec![event.clone()]);
        };
        one.holders.remove(Mode::Write, granted.at, event.attempt);
        if attempt.until.is_some_and(|until| event.at < until) {
            one.holders.insert(Mode::Read, granted.at, event.attempt);
        }
        attempt.mode = Mode::Read;
    }

    /// Ends the holding period of an attempt, because of its release or its loss.
    fn stop_holding(&mut self, event: &Event, is_loss: bool) {
        self.leave_queue(event.attempt);
        let (attempt, one) = self.state_of(event.attempt);
        if is_loss && attempt.ended.is_none() {
            attempt.ended = Some(event.clone());
        }
        if let Some(until) = attempt.until {
            one.deadlines.remove(&(until, event.attempt));
        }
        if let Some(granted) = &attempt.acquired {
            one.holders.remove(attempt.mode, granted.at, event.attempt);
        }
        attempt.until = Some(attempt.until.map_or(event.at, |until| until.min(event.at)));
    }

    fn closed(&mut self, event: &Event) {
        self.stop_holding(event, false);
        let (attempt, one) = self.state_of(event.attempt);
        if std::mem::take(&mut attempt.open) {
            one.open -= 1;
        }
    }

    /// Checks V2: a guard that says "held" was asked before its deadline and before its loss, and no conflicting
    /// attempt of another owner held the key for the whole time from the question to the answer.
    fn sampled(&mut self, event: &Event, since: Instant) {
        self.summary.samples += 1;
        let (attempt, one) = self.state_of(event.attempt);
        let deadline = match attempt.acquired.as_ref().map(|granted| &granted.kind) {
            Some(EventKind::Acquired { until, .. }) => Some(*until),
            _ => None,
        };
        let overdue = deadline.is_some_and(|deadline| since >= deadline);
        let after_loss = attempt.ended.as_ref().is_some_and(|lost| since >= lost.at);
        if overdue || after_loss {
            let events = [attempt.events(), vec![event.clone()]].concat();
            let description = "reported as held after its deadline or its loss";
            return self.report(Rule::V2, description, events);
        }
        let (mode, owner) = (attempt.mode, attempt.owner);
        let others = one.holders.since(since, event.attempt);
        let foreign = |number: &u64| self.attempts.get(number).is_some_and(|a| a.owner != owner);
        let others: Vec<(Mode, u64)> = others.into_iter().filter(|(_, number)| foreign(number)).collect();
        if let Some(&(_, witness)) = others.first()
            && !mode.admits(others.iter().map(|&(mode, _)| mode))
        {
            self.report_pair(
                Rule::V2,
                "reported as held while a conflicting attempt held the key",
                witness,
                event,
            );
        }
    }

    /// Checks V4: the guarded resource accepts no token older than the newest it has accepted.
    fn accepted(&mut self, event: &Event, token: FencingToken) {
        let (_, one) = self.state_of(event.attempt);
        match one.accepted.clone() {
            Some((newest, by)) if newest > token => {
                let description = format!("the resource accepted token {token} after {newest}");
                self.report(Rule::V4, description, vec![by, event.clone()]);
            }
            _ => one.accepted = Some((token, event.clone())),
        }
    }

    /// Checks L4: the store shows no more holders and waiters of a key, counted together, than the key has attempts
    /// that have neither failed nor been released.
    fn seen(&mut self, event: &Event, holders: u32, waiters: u32) {
        let (_, one) = self.state_of(event.attempt);
        let open = one.open;
        if holders.saturating_add(waiters) > open {
            let description =
                format!("{holders} holders and {waiters} waiters in the store, but {open} attempts open");
            self.report(Rule::L4, description, vec![event.clone()]);
        }
    }

    /// State of an attempt that has begun, and of its key.
    fn state_of(&mut self, number: u64) -> (&mut AttemptState, &mut KeyHistory) {
        let attempt = self.attempts.get_mut(&number).expect("the attempt was begun");
        let key = self.keys.get_mut(&attempt.key);
        (attempt, key.expect("an attempt is begun at its key"))
    }

    /// Reports a violation, with the events of the attempt of `event` and of the attempt `other`.
    fn report_pair(&mut self, rule: Rule, description: impl Into<String>, other: u64, event: &Event) {
        let mut events = self
            .attempts
            .get(&other)
            .map(AttemptState::events)
            .unwrap_or_default();
        if let Some(attempt) = self.attempts.get(&event.attempt) {
            events.extend(attempt.events());
        }
        if !events.contains(event) {
            events.push(event.clone());
        }
        self.report(rule, description, events);
    }

    fn report(&mut self, rule: Rule, description: impl Into<String>, events: Vec<Event>) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation {
                rule,
                description: description.into(),
                events,
            });
        }
    }
}
