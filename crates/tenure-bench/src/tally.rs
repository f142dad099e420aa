//! Counters of one round, for one worker or for all of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Significant digits of waits: accurate to 0.1 %.
const DIGITS: u8 = 3;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) time: Duration,
    /// Grants of each worker in the round, in any order.
    pub(crate) grants: Vec<u64>,
    /// Number of grants that went to another worker than the grant before.
    pub(crate) handovers: u64,
    /// Length, in nanoseconds, of each wait that began in the round, even if it ended later: from the lock call to the
    /// grant, or until the worker gave up.
    #[serde(with = "counts")]
    pub(crate) waits: Histogram<u64>,
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
    /// A round of this length, to which no worker has added its results yet.
    pub(crate) fn new(time: Duration) -> Self {
        Round {
            time,
            grants: Vec::new(),
            handovers: 0,
            waits: histogram(),
        }
    }

    /// Adds a wait, whether it ended with a grant or was given up.
    pub(crate) fn waited(&mut self, wait: Duration) {
        record(&mut self.waits, nanoseconds(wait), 1);
    }

    /// Adds the counters of other workers of the same round.
    pub(crate) fn join(&mut self, other: &Round) {
        self.grants.extend(&other.grants);
        self.handovers += other.handovers;
        merge(&mut self.waits, &other.waits);
    }

    pub(crate) fn rate(&self) -> f64 {
        self.grants.iter().sum::<u64>() as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn handovers_rate(&self) -> f64 {
        self.handovers as f64 / self.time.as_secs_f64()
    }
}

/// Serializes histograms as pairs of value and count.
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
    fn a_round_survives_serialization() {
        let mut round = Round::new(Duration::from_secs(2));
        round.grants = vec![100, 1];
        round.handovers = 100;
        (1..=100).for_each(|n| round.waited(Duration::from_micros(n)));
        round.waited(Duration::from_secs(3));
        let line = serde_json::to_string(&round).unwrap();
        let mut heard = serde_json::from_str::<Round>(&line).unwrap();
        assert_eq!(heard.grants, [100, 1]);
        assert_eq!(heard.rate(), 50.5);
        assert_eq!(heard.waits, round.waits);
        heard.join(&round);
        assert_eq!(heard.grants, [100, 1, 100, 1]);
        assert_eq!(heard.waits.len(), 202);
        assert_eq!(heard.handovers_rate(), 100.0);
    }
}
