//! What is counted during a round: by one worker, and by all of them.
//! Not here: what the numbers say (`stats`).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Waits are known to a tenth of a percent.
const DIGITS: u8 = 3;

/// What one worker saw.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Grants within the round.
    pub(crate) grants: u64,
    /// Those of them that changed the holder.
    pub(crate) handovers: u64,
    /// From the call to the grant, in nanoseconds. A wait that began within the round counts, however late it ended.
    pub(crate) waits: Histogram<u64>,
}

/// What all workers saw in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) time: Duration,
    /// Of each worker, in any order.
    pub(crate) grants: Vec<u64>,
    pub(crate) handovers: u64,
    #[serde(with = "counts")]
    pub(crate) waits: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            grants: 0,
            handovers: 0,
            waits: histogram(),
        }
    }

    /// Counts a grant; `in_time` says that it came before the round had ended.
    pub(crate) fn count(&mut self, wait: Duration, handed_over: bool, in_time: bool) {
        self.waited(wait);
        if in_time {
            self.grants += 1;
            self.handovers += u64::from(handed_over);
        }
    }

    /// Counts a wait, which may have come to nothing.
    pub(crate) fn waited(&mut self, wait: Duration) {
        record(&mut self.waits, nanoseconds(wait), 1);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are within its limits")
}

fn record(histogram: &mut Histogram<u64>, value: u64, count: u64) {
    let recorded = histogram.record_n(value, count);
    recorded.expect("a histogram that resizes takes every value");
}

pub(crate) fn merge(all: &mut Histogram<u64>, more: &Histogram<u64>) {
    all.add(more).expect("a histogram that resizes takes every value");
}

impl Round {
    pub(crate) fn of(time: Duration, tallies: &[Tally]) -> Self {
        let mut waits = histogram();
        tallies.iter().for_each(|tally| merge(&mut waits, &tally.waits));
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
        merge(&mut self.waits, &other.waits);
    }

    /// Grants a second.
    pub(crate) fn rate(&self) -> f64 {
        self.grants.iter().sum::<u64>() as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn handovers_rate(&self) -> f64 {
        self.handovers as f64 / self.time.as_secs_f64()
    }
}

/// Histograms in JSON: values, and how often each came.
mod counts {
    use super::*;

    pub(super) fn serialize<S: Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        let steps = histogram.iter_recorded();
        to.collect_seq(steps.map(|step| (step.value_iterated_to(), step.count_at_value())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let mut histogram = histogram();
        for (value, count) in Vec::<(u64, u64)>::deserialize(from)? {
            record(&mut histogram, value, count);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_after_the_end_counts_as_a_wait_and_not_as_a_turn_taken() {
        let mut tally = Tally::new();
        tally.count(Duration::from_micros(10), false, true);
        tally.count(Duration::from_micros(20), true, true);
        tally.count(Duration::from_millis(9), true, false);
        tally.waited(Duration::from_secs(2));
        assert_eq!((tally.grants, tally.handovers), (2, 1));
        assert_eq!(tally.waits.len(), 4);
        assert!(tally.waits.max() >= 2_000_000_000);
    }

    #[test]
    fn a_round_told_by_another_process_says_the_same() {
        let mut tallies = [Tally::new(), Tally::new()];
        for n in 1..=100 {
            tallies[0].count(Duration::from_micros(n), true, true);
        }
        tallies[1].count(Duration::from_secs(3), false, true);
        let round = Round::of(Duration::from_secs(2), &tallies);
        let line = serde_json::to_string(&round).unwrap();
        let mut heard = serde_json::from_str::<Round>(&line).unwrap();
        assert_eq!(heard.grants, [100, 1]);
        assert_eq!(heard.handovers, 100);
        assert_eq!(heard.rate(), 50.5);
        assert_eq!(heard.waits, round.waits);
        heard.join(round);
        assert_eq!(heard.grants, [100, 1, 100, 1]);
        assert_eq!(heard.waits.len(), 202);
        assert_eq!(heard.handovers_rate(), 100.0);
    }
}
