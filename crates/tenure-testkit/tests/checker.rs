//! The checker on random histories: its result equals that of a brute-force oracle.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use tenure_backend::{FencingToken, Instant, LockKey, Mode};
use tenure_testkit::{Dice, Event, EventKind, Rule, check};

/// All events of one attempt, in the form that the oracle uses.
#[derive(Clone, Debug)]
struct Attempt {
    number: u64,
    mode: Mode,
    invoked: u64,
    queued: Option<u64>,
    acquired: Option<(u64, u64, Option<u64>)>,
    downgraded: Option<u64>,
    release: Option<u64>,
    lost: Option<u64>,
    sample: Option<(u64, u64)>,
    write: Option<(u64, u64)>,
}

impl Attempt {
    fn events(&self) -> Vec<Event> {
        let event = |at, kind| Event {
            at: Instant::from_nanos(at),
            attempt: self.number,
            kind,
        };
        let invoked = EventKind::Invoked {
            key: LockKey::new("k").unwrap(),
            owner: self.number,
            mode: self.mode,
        };
        let mut events = vec![event(self.invoked, invoked)];
        events.extend(self.queued.map(|at| event(at, EventKind::Queued)));
        events.extend(self.acquired.map(|(at, until, token)| {
            let token = token.and_then(FencingToken::new);
            let until = Instant::from_nanos(until);
            event(at, EventKind::Acquired { token, until })
        }));
        events.extend(self.downgraded.map(|at| event(at, EventKind::DowngradeInvoked)));
        events.extend(self.release.map(|at| event(at, EventKind::ReleaseInvoked)));
        events.extend(self.lost.map(|at| event(at, EventKind::Lost)));
        events.extend(self.sample.map(|(since, at)| {
            let since = Instant::from_nanos(since);
            event(at, EventKind::Sampled { since, held: true })
        }));
        events.extend(self.write.map(|(at, token)| {
            let token = FencingToken::new(token).unwrap();
            event(at, EventKind::Accepted { token })
        }));
        events
    }

    /// Holding period by definition: its start, and its exclusive end. `None` if it is empty.
    fn holding_period(&self) -> Option<(u64, u64)> {
        let (from, until, _) = self.acquired?;
        let ends = [Some(until), self.release, self.lost];
        let until = ends.into_iter().flatten().min()?;
        (from < until).then_some((from, until))
    }

    fn mode_at(&self, time: u64) -> Mode {
        if self.downgraded.is_some_and(|at| at <= time) {
            Mode::Read
        } else {
            self.mode
        }
    }

    fn conflicts(&self, other: &Attempt) -> bool {
        !self.mode.admits([other.mode])
    }
}

/// Rules that a history violates, computed directly from their definitions.
fn oracle(history: &[Attempt]) -> BTreeSet<Rule> {
    let mut broken = BTreeSet::new();
    for a in history {
        if let Some((from, _)) = a.holding_period() {
            let others = history.iter().filter(|b| b.number != a.number);
            let together: Vec<Mode> = others
                .filter(|b| {
                    b.holding_period()
                        .is_some_and(|(start, end)| start <= from && from < end)
                })
                .map(|b| b.mode_at(from))
                .collect();
            if !together.is_empty() && !a.mode.admits(together) {
                broken.insert(Rule::V1);
            }
        }
        if let Some((since, at)) = a.sample {
            let overdue = a.acquired.is_some_and(|(_, until, _)| since >= until);
            let told = a.lost.is_some_and(|lost| since >= lost);
            let others = history.iter().filter(|b| b.number != a.number);
            let around: Vec<Mode> = others
                .filter(|b| {
                    b.holding_period()
                        .is_some_and(|(start, end)| start <= since && at < end)
                })
                .map(|b| b.mode_at(at))
                .collect();
            if overdue || told || !around.is_empty() && !a.mode_at(at).admits(around) {
                broken.insert(Rule::V2);
            }
        }
        for b in history.iter().filter(|b| b.number != a.number && a.conflicts(b)) {
            if let (Some((a_ok, _, Some(first))), Some((_, _, Some(second)))) = (a.acquired, b.acquired)
                && (a_ok < b.invoked && first >= second || first == second)
            {
                broken.insert(Rule::V3);
            }
            let left = [a.acquired.map(|(at, ..)| at), a.release, a.lost];
            let left = left.into_iter().flatten().min().unwrap_or(u64::MAX);
            if let (Some(queued), Some((b_ok, ..))) = (a.queued, b.acquired)
                && queued < b.invoked
                && b_ok < left
            {
                broken.insert(Rule::L3);
            }
        }
    }
    let mut writes: Vec<(u64, u64)> = history.iter().filter_map(|a| a.write).collect();
    writes.sort_by_key(|&(at, _)| at);
    if !writes.is_sorted_by_key(|&(_, token)| token) {
        broken.insert(Rule::V4);
    }
    broken
}

fn permits(take: u32) -> Mode {
    Mode::Permits {
        take: NonZeroU32::new(take).unwrap(),
        of: NonZeroU32::new(3).unwrap(),
    }
}

fn any_mode(dice: &mut Dice, kind: u64) -> Mode {
    match (kind, dice.below(3)) {
        (0, _) => Mode::Exclusive,
        (1, 0) => Mode::Write,
        (1, _) => Mode::Read,
        (_, n) => permits(u32::try_from(n).unwrap() + 1),
    }
}

/// Random history. Writes have distinct times, because the rules do not order writes at the same time.
fn any_history(dice: &mut Dice) -> Vec<Attempt> {
    let kind = dice.below(3);
    let attempts = 2 + dice.below(3);
    let mut write_times: Vec<u64> = (0..40).collect();
    (0..attempts)
        .map(|number| {
            let mode = any_mode(dice, kind);
            let invoked = dice.below(30);
            let mut later = |from: u64| from + 1 + dice.below(12);
            let queued = later(invoked);
            let acquired = later(queued);
            let (until, release, lost) = (later(acquired), later(acquired), later(acquired));
            let sample = (later(invoked), later(invoked));
            let downgraded = later(acquired);
            let is_granted = dice.chance(80);
            Attempt {
                number,
                mode,
                invoked,
                queued: dice.chance(30).then_some(queued),
                acquired: is_granted.then(|| {
                    let token = dice.chance(80).then(|| 1 + dice.below(6));
                    (acquired, until, token)
                }),
                downgraded: (is_granted && mode == Mode::Write && dice.chance(40)).then_some(downgraded),
                release: dice.chance(60).then_some(release),
                lost: dice.chance(20).then_some(lost),
                sample: dice
                    .chance(30)
                    .then_some((sample.0.min(sample.1), sample.0.max(sample.1))),
                write: dice.chance(20).then(|| {
                    let chosen = dice.below(write_times.len() as u64);
                    let at = write_times.swap_remove(usize::try_from(chosen).unwrap());
                    (100 + at, 1 + dice.below(6))
                }),
            }
        })
        .collect()
}

#[test]
fn the_checker_agrees_with_a_brute_force_oracle() {
    let mut found = BTreeSet::new();
    let mut clean = 0;
    for seed in 0..20_000 {
        let mut dice = Dice::new(seed);
        let history = any_history(&mut dice);
        let expected = oracle(&history);
        let events = history.iter().flat_map(Attempt::events);
        let judged: BTreeSet<Rule> = match check(events) {
            Ok(_) => BTreeSet::new(),
            Err(violations) => violations.iter().map(|violation| violation.rule).collect(),
        };
        assert_eq!(judged, expected, "seed {seed}: {history:#?}");
        clean += usize::from(expected.is_empty());
        found.extend(expected);
    }
    assert_eq!(found.len(), 5, "the random histories violate only {found:?}");
    assert!(clean > 1_000, "only {clean} random histories have no violation");
}

#[test]
fn a_long_history_is_checked_in_seconds() {
    let mut history = Vec::new();
    for number in 0..100_000 {
        let (granted, until) = (number + 1, 1_000_000 + number);
        let lines = [
            format!("{number} {number} invoked owner={number} mode=read key=k"),
            format!("{granted} {number} acquired token={granted} until={until}"),
        ];
        history.extend(lines.map(|line| line.parse::<Event>().unwrap()));
    }
    let start = std::time::Instant::now();
    check(history).unwrap();
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
