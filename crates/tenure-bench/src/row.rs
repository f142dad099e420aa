//! A row of results: all rounds of one client on one workload and store.

use serde::Serialize;

use crate::plan::{Client, Store, Workload};
use crate::stats::{median, min_share};
use crate::tally::{Round, histogram, merge};

/// A row as it is written to the JSON file, one object per line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) store: Store,
    pub(crate) client: Client,
    /// Locks granted per second: the median over the rounds.
    pub(crate) rate_per_s: f64,
    /// Grants per second that went to another worker than the grant before: the median over the rounds.
    pub(crate) handovers_per_s: f64,
    /// Time from the lock call to the grant, or until the worker gave up, in µs over all waits: median, 99th percentile
    /// and maximum.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Smallest share of the grants that a worker got, divided by the fair share: the median over the rounds.
    pub(crate) min_share: f64,
    /// Locks granted per second in each round, in order.
    pub(crate) rounds: Vec<f64>,
}

impl Row {
    pub(crate) fn of(workload: Workload, store: Store, client: Client, rounds: &[Round]) -> Self {
        let each = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
        let mut waits = histogram();
        rounds.iter().for_each(|round| merge(&mut waits, &round.waits));
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Row {
            workload,
            store,
            client,
            rate_per_s: median(&each(Round::rate)),
            handovers_per_s: median(&each(Round::handovers_rate)),
            p50_us: us(waits.value_at_quantile(0.5)),
            p99_us: us(waits.value_at_quantile(0.99)),
            max_us: us(waits.max()),
            min_share: median(&each(|round| min_share(&round.grants))),
            rounds: each(Round::rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    /// A round of one second in which each worker got its number of `grants`, after waits of 1, 2, 3 … µs.
    fn round(grants: &[u64]) -> Round {
        let mut round = Round::new(Duration::from_secs(1));
        round.grants = grants.to_vec();
        round.handovers = grants.iter().map(|count| count / 2).sum();
        for wait in grants.iter().flat_map(|count| 1..=*count) {
            round.waited(Duration::from_micros(wait));
        }
        round
    }

    #[test]
    fn a_row_has_medians_of_rounds_and_percentiles_of_waits() {
        let rounds = [round(&[100, 300]), round(&[100, 100]), round(&[0, 1000])];
        let row = Row::of(
            Workload::Hot,
            Store::Sqlite,
            Client::TenureNoLocalHandover,
            &rounds,
        );
        assert_eq!(row.rate_per_s, 400.0);
        assert_eq!(row.handovers_per_s, 200.0);
        assert_eq!(row.min_share, 0.5);
        assert_eq!(row.rounds, [400.0, 200.0, 1000.0]);
        // The waits, in µs: four times 1 to 100, once 101 to 300, once 1 to 1000. The histogram is accurate to 0.1 %.
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.002;
        assert!(near(row.p50_us, 250.0), "{}", row.p50_us);
        assert!(near(row.p99_us, 984.0), "{}", row.p99_us);
        assert!(near(row.max_us, 1000.0), "{}", row.max_us);
    }
}
