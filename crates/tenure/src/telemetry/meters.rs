//! The metrics of one client, or of one key with `Settings::key_labels`. Their names are in `names.rs`. `no_meters.rs` is
//! the same without the feature `metrics`.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, Unit};

use super::names::{
    ACQUISITIONS, HELD, HOLD, LATENESS, LOCAL_HANDOVERS, LOST, MARGIN, RENEWAL, RENEWALS, UNRETURNED, WAIT,
    WAITERS,
};
use super::outcome::Outcome;
use crate::error::LostCause;

/// Every outcome and its label, in the order of the enum.
const OUTCOMES: [(Outcome, &str); 7] = [
    (Outcome::Acquired, "acquired"),
    (Outcome::Busy, "busy"),
    (Outcome::Timeout, "timeout"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Failed, "failed"),
    (Outcome::Refused, "refused"),
    (Outcome::Closed, "closed"),
];

/// All values that [`LostCause::as_str`] may return.
const CAUSES: [&str; 7] = [
    "expired",
    "evicted",
    "session",
    "missing",
    "unreachable",
    "max_hold",
    "closed",
];

/// Metrics, created once, so that recording is one atomic operation. They use the recorder that is installed when they
/// are created.
pub(crate) struct Meters {
    labels: Vec<Label>,
    /// Count and waits of acquisitions, by outcome in the order of [`OUTCOMES`].
    acquisitions: [(Counter, Histogram); OUTCOMES.len()],
    /// A counter of lost locks for each cause. All exist from the start, because dashboards see no increase in a counter
    /// that first appears as 1.
    lost: [(&'static str, Counter); CAUSES.len()],
    pub(crate) hold: Histogram,
    pub(crate) held: Gauge,
    pub(crate) waiters: Gauge,
    pub(crate) passed: Counter,
    pub(crate) unreturned: Counter,
}

/// The metrics of a client's watchdog, which renews many keys at once.
pub(crate) struct Rounds {
    pub(crate) renewal: Histogram,
    pub(crate) renewed: Counter,
    pub(crate) failed: Counter,
    pub(crate) margin: Histogram,
    pub(crate) lateness: Histogram,
}

impl Meters {
    /// Creates the metrics for a store, with a label `key` if a key is given.
    pub(crate) fn new(store: &'static str, key: Option<&str>) -> Self {
        describe();
        let mut labels = vec![Label::from_static_parts("store", store)];
        labels.extend(key.map(|key| Label::new("key", key.to_owned())));
        let with = |label: &'static str, value: &'static str| {
            let mut labels = labels.clone();
            labels.push(Label::from_static_parts(label, value));
            labels
        };
        let acquisitions = OUTCOMES.map(|(_, outcome)| {
            let labels = with("outcome", outcome);
            (
                metrics::counter!(ACQUISITIONS, labels.clone()),
                metrics::histogram!(WAIT, labels),
            )
        });
        let lost = CAUSES.map(|cause| (cause, metrics::counter!(LOST, with("cause", cause))));
        Meters {
            acquisitions,
            lost,
            hold: metrics::histogram!(HOLD, labels.clone()),
            held: metrics::gauge!(HELD, labels.clone()),
            waiters: metrics::gauge!(WAITERS, labels.clone()),
            passed: metrics::counter!(LOCAL_HANDOVERS, labels.clone()),
            unreturned: metrics::counter!(UNRETURNED, labels.clone()),
            labels,
        }
    }

    pub(crate) fn acquisition(&self, outcome: Outcome, wait: Duration) {
        let (ended, waited) = &self.acquisitions[outcome as usize];
        ended.increment(1);
        waited.record(wait);
    }

    pub(crate) fn lost(&self, cause: &LostCause) {
        let word = cause.as_str();
        if let Some((_, counter)) = self.lost.iter().find(|(known, _)| *known == word) {
            counter.increment(1);
        }
    }
}

impl Rounds {
    pub(crate) fn new(store: &'static str) -> Self {
        let renewals =
            |outcome: &'static str| metrics::counter!(RENEWALS, "store" => store, "outcome" => outcome);
        Rounds {
            renewal: metrics::histogram!(RENEWAL, "store" => store),
            renewed: renewals("renewed"),
            failed: renewals("failed"),
            margin: metrics::histogram!(MARGIN, "store" => store),
            lateness: metrics::histogram!(LATENESS, "store" => store),
        }
    }
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rounds(..)")
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Meters").field(&self.labels).finish()
    }
}

fn describe() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    counter!(ACQUISITIONS, "Acquisitions that ended, by outcome");
    histogram!(
        WAIT,
        Unit::Seconds,
        "From the first poll of an acquisition to its end"
    );
    histogram!(HOLD, Unit::Seconds, "From the grant to the end of its guard");
    gauge!(HELD, "Guards that are alive");
    gauge!(WAITERS, "Acquisitions that wait");
    counter!(LOCAL_HANDOVERS, "Local hand-overs: grants made in memory");
    counter!(LOST, "Locks that were lost, by cause");
    histogram!(
        RENEWAL,
        Unit::Seconds,
        "How long a renewal took, for all claims of one call"
    );
    counter!(RENEWALS, "Claims that were to be renewed, by outcome");
    histogram!(
        MARGIN,
        Unit::Seconds,
        "Time left until the local deadline when a renewal was confirmed"
    );
    histogram!(
        LATENESS,
        Unit::Seconds,
        "How late the watchdog handled due claims"
    );
    counter!(UNRETURNED, "Locks that could not be released in time");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_found_at_its_own_place() {
        assert!(
            (0..)
                .zip(OUTCOMES)
                .all(|(place, (outcome, _))| outcome as usize == place)
        );
    }

    #[test]
    fn every_cause_of_a_loss_has_a_counter() {
        let causes = [
            LostCause::Expired,
            LostCause::Evicted { by: None },
            LostCause::Session,
            LostCause::Missing,
            LostCause::Unreachable,
            LostCause::MaxHold,
            LostCause::Closed,
        ];
        assert_eq!(causes.map(|cause| cause.as_str()), CAUSES);
    }
}
