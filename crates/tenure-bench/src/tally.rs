//! What is counted during a round: by one worker, and by all of them.
//! Not here: what the numbers say (`stats`).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::baton::Turn;

/// Waits are known to a tenth of a percent.
const DIGITS: u8 = 3;

/// What one worker saw.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Grants within the round.
    pub(crate) grants: u64,
    /// Those of them that changed the holder.
    pub(crate) handovers: u64,
    pub(crate) waits: Waits,
}

/// How long was waited, from the call to the grant, in nanoseconds and in turns of others.
///
/// A wait that began within the round counts, however late it ended.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) time: Histogram<u64>,
    pub(crate) turns: Histogram<u64>,
}

/// What all workers saw in one round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) time: Duration,
    /// Of each worker, in the order of their numbers.
    pub(crate) grants: Vec<u64>,
    pub(crate) handovers: u64,
    pub(crate) waits: Waits,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            grants: 0,
            handovers: 0,
            waits: Waits::new(),
        }
    }

    /// Counts a grant; `in_time` says that it came before the round had ended.
    pub(crate) fn count(&mut self, wait: Duration, turns_before: u64, turn: Turn, in_time: bool) {
        self.waited(wait, (turn.number - 1).saturating_sub(turns_before));
        if in_time {
            self.grants += 1;
            self.handovers += u64::from(turn.handed_over);
        }
    }

    /// Counts a wait that has lasted so long, and so many turns of others, and came to nothing.
    pub(crate) fn give_up(&mut self, wait: Duration, turns: u64) {
        self.waited(wait, turns);
    }

    fn waited(&mut self, wait: Duration, turns: u64) {
        record(&mut self.waits.time, nanoseconds(wait), 1);
        record(&mut self.waits.turns, turns, 1);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Waits {
    pub(crate) fn new() -> Self {
        Waits {
            time: histogram(),
            turns: histogram(),
        }
    }

    pub(crate) fn add(&mut self, other: &Waits) {
        merge(&mut self.time, &other.time);
        merge(&mut self.turns, &other.turns);
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are within its limits")
}

fn record(histogram: &mut Histogram<u64>, value: u64, count: u64) {
    let recorded = histogram.record_n(value, count);
    recorded.expect("a histogram that resizes takes every value");
}

fn merge(all: &mut Histogram<u64>, more: &Histogram<u64>) {
    all.add(more).expect("a histogram that resizes takes every value");
}

impl Round {
    pub(crate) fn of(time: Duration, tallies: &[Tally]) -> Self {
        let mut waits = Waits::new();
        tallies.iter().for_each(|tally| waits.add(&tally.waits));
        Round {
            time,
            grants: tallies.iter().map(|tally| tally.grants).collect(),
            handovers: tallies.iter().map(|tally| tally.handovers).sum(),
            waits,
        }
    }

    /// Adds what the workers of another process saw in the same round.
    pub(crate) fn join(&mut self, other: Round) {
        self.grants.extend(other.grants);
        self.handovers += other.handovers;
        self.waits.add(&other.waits);
    }

    /// Grants a second.
    pub(crate) fn rate(&self) -> f64 {
        self.grants.iter().sum::<u64>() as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn handovers_rate(&self) -> f64 {
        self.handovers as f64 / self.time.as_secs_f64()
    }
}

/// A round as one process tells it to another, on one line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    time: Duration,
    grants: Vec<u64>,
    handovers: u64,
    /// Values and how often they came.
    waits: Vec<(u64, u64)>,
    turns: Vec<(u64, u64)>,
}

impl From<&Round> for Told {
    fn from(round: &Round) -> Self {
        let list = |histogram: &Histogram<u64>| {
            let steps = histogram.iter_recorded();
            steps
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect()
        };
        Told {
            time: round.time,
            grants: round.grants.clone(),
            handovers: round.handovers,
            waits: list(&round.waits.time),
            turns: list(&round.waits.turns),
        }
    }
}

impl From<Told> for Round {
    fn from(told: Told) -> Self {
        let read = |steps: Vec<(u64, u64)>| {
            let mut histogram = histogram();
            for (value, count) in steps {
                record(&mut histogram, value, count);
            }
            histogram
        };
        Round {
            time: told.time,
            grants: told.grants,
            handovers: told.handovers,
            waits: Waits {
                time: read(told.waits),
                turns: read(told.turns),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(number: u64, handed_over: bool) -> Turn {
        Turn { number, handed_over }
    }

    #[test]
    fn a_grant_after_the_end_counts_as_a_wait_and_not_as_a_turn_taken() {
        let mut tally = Tally::new();
        tally.count(Duration::from_micros(10), 0, turn(1, false), true);
        tally.count(Duration::from_micros(20), 1, turn(5, true), true);
        tally.count(Duration::from_millis(9), 5, turn(70, true), false);
        assert_eq!((tally.grants, tally.handovers), (2, 1));
        assert_eq!(tally.waits.time.len(), 3);
        assert_eq!(tally.waits.turns.max(), 64);
        assert_eq!(tally.waits.turns.min(), 0);
    }

    #[test]
    fn a_wait_that_is_given_up_counts_for_as_long_as_it_lasted() {
        let mut tally = Tally::new();
        tally.give_up(Duration::from_secs(2), 900);
        assert_eq!((tally.grants, tally.handovers), (0, 0));
        assert!(tally.waits.time.max() >= 2_000_000_000);
        assert_eq!(tally.waits.turns.max(), 900);
    }

    #[test]
    fn a_round_told_by_another_process_says_the_same() {
        let mut tallies = [Tally::new(), Tally::new()];
        for n in 1..=100 {
            tallies[0].count(Duration::from_micros(n), 0, turn(n, true), true);
        }
        tallies[1].count(Duration::from_secs(3), 0, turn(1, false), true);
        let round = Round::of(Duration::from_secs(2), &tallies);
        let line = serde_json::to_string(&Told::from(&round)).unwrap();
        let mut heard = Round::from(serde_json::from_str::<Told>(&line).unwrap());
        assert_eq!(heard.grants, [100, 1]);
        assert_eq!(heard.handovers, 100);
        assert_eq!(heard.rate(), 50.5);
        assert_eq!(heard.waits.time, round.waits.time);
        assert_eq!(heard.waits.turns, round.waits.turns);
        heard.join(round);
        assert_eq!(heard.grants, [100, 1, 100, 1]);
        assert_eq!(heard.waits.time.len(), 202);
        assert_eq!(heard.handovers_rate(), 100.0);
    }
}
