//! The judge of histories: one sweep over their events in the order of time.
//! What it looks for is in `violation.rs`; how a key's present holders are kept is in `belief.rs`.
//!
//! An attempt is *believed* from its `acquired` to the first of its `release`, its `lost` and its local deadline.
//! The end does not belong to the belief: two may touch. Attempts whose outcome is unknown prove nothing.
//! For claims tagged with their owner this sweep is complete: a history has an explanation by a lock if and only
//! if beliefs that [`Mode::admits`] refuses are disjoint.

use std::collections::{BTreeSet, HashMap};

use tenure_backend::{FencingToken, Instant, LockKey, Mode};

use crate::belief::{Believers, Tokens};
use crate::history::{Event, What};
use crate::violation::{Rule, Summary, Violation};

/// No more violations than these are listed: the first few tell the story.
const MAX_VIOLATIONS: usize = 100;

/// Judges a whole history; its events may come in any order.
///
/// # Errors
/// Every violation found (up to 100), each with the events concerned.
pub fn check(history: impl IntoIterator<Item = Event>) -> Result<Summary, Vec<Violation>> {
    let mut events: Vec<Event> = history.into_iter().collect();
    let invoked = events
        .iter()
        .filter(|event| matches!(event.what, What::Invoked { .. }));
    let begun: HashMap<u64, Instant> = invoked.map(|event| (event.attempt, event.at)).collect();
    // Of grants at one and the same time the attempt that was begun first comes first, as in a queue.
    events.sort_by_cached_key(|event| (event.at, turn(&event.what), begun.get(&event.attempt).copied()));
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

/// At one and the same time ends come first and looks last, so that beliefs may touch.
fn turn(what: &What) -> u8 {
    match what {
        What::Invoked { .. } => 0,
        What::ReleaseInvoked | What::Released | What::Lost | What::Failed | What::Unknown => 1,
        What::Queued => 2,
        What::Acquired { .. } => 3,
        What::Sampled { .. } | What::Accepted { .. } | What::Seen { .. } => 4,
    }
}

/// Judges a history event by event, in the order of time.
#[derive(Debug, Default)]
struct Checker {
    attempts: HashMap<u64, Attempted>,
    keys: HashMap<LockKey, OneKey>,
    summary: Summary,
    violations: Vec<Violation>,
}

/// One attempt so far.
#[derive(Debug)]
struct Attempted {
    key: LockKey,
    owner: u64,
    mode: Mode,
    invoked: Event,
    queued: Option<Instant>,
    acquired: Option<Event>,
    /// When its belief ended or will end: release, loss or deadline.
    until: Option<Instant>,
    /// Whether loss or the deadline, not its own release, ended it.
    ended: Option<Event>,
    /// Whether it may still have something in the store.
    open: bool,
}

impl Attempted {
    fn story(&self) -> Vec<Event> {
        let told = [Some(&self.invoked), self.acquired.as_ref(), self.ended.as_ref()];
        told.into_iter().flatten().cloned().collect()
    }
}

/// One key so far.
#[derive(Debug, Default)]
struct OneKey {
    believers: Believers,
    /// Who is believed, by when that ends by itself.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Who stands in the queue, by when it was known to.
    queue: BTreeSet<(Instant, u64)>,
    tokens: Tokens,
    accepted: Option<(FencingToken, Event)>,
    open: u32,
}

impl Checker {
    fn take(&mut self, event: &Event) {
        if let What::Invoked { key, owner, mode } = &event.what {
            return self.invoked(event, key, *owner, *mode);
        }
        let Some(attempt) = self.attempts.get(&event.attempt) else {
            return self.report(
                Rule::History,
                "an attempt that was never begun",
                vec![event.clone()],
            );
        };
        self.expire(&attempt.key.clone(), event.at);
        match &event.what {
            What::Invoked { .. } => {}
            What::Queued => self.queued(event),
            What::Acquired { token, until } => self.acquired(event, *token, *until),
            What::Unknown => self.leave_queue(event.attempt),
            What::Failed | What::Released => self.closed(event),
            What::ReleaseInvoked => self.believed_no_more(event, false),
            What::Lost => self.believed_no_more(event, true),
            What::Sampled { since, held: true } => self.sampled(event, *since),
            What::Sampled { held: false, .. } => {}
            What::Accepted { token } => self.accepted(event, *token),
            What::Seen { holders, waiters } => self.seen(event, *holders, *waiters),
        }
    }

    fn invoked(&mut self, event: &Event, key: &LockKey, owner: u64, mode: Mode) {
        if let Some(before) = self.attempts.get(&event.attempt) {
            let story = [before.story(), vec![event.clone()]].concat();
            return self.report(Rule::History, "an attempt that was begun twice", story);
        }
        let attempt = Attempted {
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

    /// Ends every belief of the key whose deadline has come.
    fn expire(&mut self, key: &LockKey, now: Instant) {
        let Some(one) = self.keys.get_mut(key) else { return };
        while let Some(&(deadline, number)) = one.deadlines.first() {
            if deadline > now {
                break;
            }
            one.deadlines.pop_first();
            let attempt = self.attempts.get(&number);
            if let Some((attempt, granted)) = attempt.and_then(|a| Some((a, a.acquired.as_ref()?))) {
                one.believers.remove(attempt.mode, granted.at, number);
            }
        }
    }

    fn queued(&mut self, event: &Event) {
        self.leave_queue(event.attempt);
        let (attempt, one) = self.at(event.attempt);
        if attempt.acquired.is_none() && attempt.open {
            attempt.queued = Some(event.at);
            one.queue.insert((event.at, event.attempt));
        }
    }

    fn leave_queue(&mut self, number: u64) {
        let (attempt, one) = self.at(number);
        if let Some(since) = attempt.queued.take() {
            one.queue.remove(&(since, number));
        }
    }

    fn acquired(&mut self, event: &Event, token: Option<FencingToken>, until: Instant) {
        self.leave_queue(event.attempt);
        let (attempt, _) = self.at(event.attempt);
        if attempt.acquired.is_some() {
            let story = [attempt.story(), vec![event.clone()]].concat();
            return self.report(Rule::History, "an attempt that was granted twice", story);
        }
        attempt.acquired = Some(event.clone());
        let until = attempt.until.map_or(until, |ended| ended.min(until));
        attempt.until = Some(until);
        let (mode, invoked) = (attempt.mode, attempt.invoked.at);
        self.summary.acquired += 1;
        self.judge_order(event, mode, invoked);
        if let Some(token) = token {
            self.judge_token(event, mode, invoked, token);
        }
        if until > event.at {
            self.believe(event, mode, until);
        }
    }

    /// V1, and from here on the attempt is believed.
    fn believe(&mut self, event: &Event, mode: Mode, until: Instant) {
        let (_, one) = self.at(event.attempt);
        let witness = one.believers.refuses(mode);
        one.believers.insert(mode, event.at, event.attempt);
        one.deadlines.insert((until, event.attempt));
        if let Some(other) = witness {
            let what = format!("a grant ({mode}) while another is believed that does not admit it");
            self.report_pair(Rule::V1, what, other, event);
        }
    }

    /// L3: nobody who was placed before this one was even begun is still waiting, unless both may hold.
    fn judge_order(&mut self, event: &Event, mode: Mode, invoked: Instant) {
        let (_, one) = self.at(event.attempt);
        let ahead: Vec<u64> = one
            .queue
            .range(..(invoked, 0))
            .map(|&(_, number)| number)
            .collect();
        let conflicts = |number: &u64| self.attempts.get(number).is_some_and(|a| !mode.admits([a.mode]));
        if let Some(overtaken) = ahead.into_iter().find(conflicts) {
            let what = "a grant before that of a conflicting attempt which had been queued earlier";
            self.report_pair(Rule::L3, what, overtaken, event);
        }
    }

    /// V3: greater than every token that a conflicting attempt was granted before this one began, and unique.
    fn judge_token(&mut self, event: &Event, mode: Mode, invoked: Instant, token: FencingToken) {
        let (_, one) = self.at(event.attempt);
        let older = one.tokens.not_below(mode, invoked, token);
        let twin = one.tokens.draw(mode, event.at, token, event.attempt);
        if let Some(other) = older {
            let what = format!("token {token} after an equal or greater one");
            self.report_pair(Rule::V3, what, other, event);
        } else if let Some(other) = twin {
            self.report_pair(
                Rule::V3,
                format!("token {token} was given out twice"),
                other,
                event,
            );
        }
    }

    fn believed_no_more(&mut self, event: &Event, against_its_will: bool) {
        self.leave_queue(event.attempt);
        let (attempt, one) = self.at(event.attempt);
        if against_its_will && attempt.ended.is_none() {
            attempt.ended = Some(event.clone());
        }
        if let Some(until) = attempt.until {
            one.deadlines.remove(&(until, event.attempt));
        }
        if let Some(granted) = &attempt.acquired {
            one.believers.remove(attempt.mode, granted.at, event.attempt);
        }
        attempt.until = Some(attempt.until.map_or(event.at, |until| until.min(event.at)));
    }

    fn closed(&mut self, event: &Event) {
        self.believed_no_more(event, false);
        let (attempt, one) = self.at(event.attempt);
        if std::mem::take(&mut attempt.open) {
            one.open -= 1;
        }
    }

    /// V2: "it is held" was said although the whole question lies after the belief's own end, or inside the
    /// belief of others who do not admit it.
    fn sampled(&mut self, event: &Event, since: Instant) {
        self.summary.samples += 1;
        let (attempt, one) = self.at(event.attempt);
        let deadline = match attempt.acquired.as_ref().map(|granted| &granted.what) {
            Some(What::Acquired { until, .. }) => Some(*until),
            _ => None,
        };
        let overdue = deadline.is_some_and(|deadline| since >= deadline);
        let told_lost = attempt.ended.as_ref().is_some_and(|lost| since >= lost.at);
        if overdue || told_lost {
            let story = [attempt.story(), vec![event.clone()]].concat();
            let what = "said to be held after its deadline or its loss";
            return self.report(Rule::V2, what, story);
        }
        let (mode, owner) = (attempt.mode, attempt.owner);
        let others = one.believers.throughout(since, event.attempt);
        let foreign = |number: &u64| self.attempts.get(number).is_some_and(|a| a.owner != owner);
        let others: Vec<(Mode, u64)> = others.into_iter().filter(|(_, number)| foreign(number)).collect();
        if let Some(&(_, witness)) = others.first()
            && !mode.admits(others.iter().map(|&(mode, _)| mode))
        {
            self.report_pair(
                Rule::V2,
                "said to be held inside another's belief",
                witness,
                event,
            );
        }
    }

    /// V4: the guarded resource never goes back to an older token.
    fn accepted(&mut self, event: &Event, token: FencingToken) {
        let (_, one) = self.at(event.attempt);
        match one.accepted.clone() {
            Some((newest, by)) if newest > token => {
                let what = format!("the resource accepted token {token} after {newest}");
                self.report(Rule::V4, what, vec![by, event.clone()]);
            }
            _ => one.accepted = Some((token, event.clone())),
        }
    }

    /// L4: the store shows no more holders and waiters than there are attempts that have not ended.
    fn seen(&mut self, event: &Event, holders: u32, waiters: u32) {
        let (_, one) = self.at(event.attempt);
        let open = one.open;
        if holders.saturating_add(waiters) > open {
            let what =
                format!("{holders} holders and {waiters} waiters in the store, but {open} attempts open");
            self.report(Rule::L4, what, vec![event.clone()]);
        }
    }

    /// An attempt that was begun, and its key.
    fn at(&mut self, number: u64) -> (&mut Attempted, &mut OneKey) {
        let attempt = self.attempts.get_mut(&number).expect("the attempt was begun");
        let key = self.keys.get_mut(&attempt.key);
        (attempt, key.expect("an attempt is begun at its key"))
    }

    fn report_pair(&mut self, rule: Rule, what: impl Into<String>, other: u64, event: &Event) {
        let mut story = self
            .attempts
            .get(&other)
            .map(Attempted::story)
            .unwrap_or_default();
        if let Some(attempt) = self.attempts.get(&event.attempt) {
            story.extend(attempt.story());
        }
        if !story.contains(event) {
            story.push(event.clone());
        }
        self.report(rule, what, story);
    }

    fn report(&mut self, rule: Rule, what: impl Into<String>, events: Vec<Event>) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation {
                rule,
                what: what.into(),
                events,
            });
        }
    }
}
