//! The books and the latencies, a line for each trial.
//! Not here: how they come about.

use std::time::Duration;

use super::trial::Outcome;
use crate::shop::ITEMS;

/// The head of the table.
pub(crate) fn head() -> String {
    format!(
        "{:<14}{:>6}{:>6}{:>10}{:>14}{:>10}{:>13}{:>9}{:>9}{:>10}{:>10}{:>10}{:>10}",
        "trial",
        "sold",
        "left",
        "oversold",
        "updates lost",
        "sold out",
        "turned away",
        "refused",
        "at once",
        "orders/s",
        "p50",
        "p99",
        "max",
    )
}

impl Outcome {
    /// Its line in the table.
    pub(crate) fn line(&self) -> String {
        let mut took = self.told.took.clone();
        took.sort_unstable();
        let rate = self.rate().map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        format!(
            "{:<14}{:>6}{:>6}{:>10}{:>14}{:>10}{:>13}{:>9}{:>9}{rate:>10}{:>10}{:>10}{:>10}",
            self.trial.name,
            self.sold,
            self.left,
            (self.sold - ITEMS).max(0),
            self.lost(),
            self.told.sold_out,
            self.told.turned_away,
            self.overtaken,
            self.at_once,
            millis(&took, 50),
            millis(&took, 99),
            millis(&took, 100),
        )
    }

    /// How many items more than there were are sold or left: so many updates were written over.
    pub(crate) fn lost(&self) -> i64 {
        self.sold + self.left - ITEMS
    }

    /// Orders a second, from the crowd's coming to its last order; none where it had to wait for a paused shop.
    pub(crate) fn rate(&self) -> Option<f64> {
        let time = self.told.until_last_order;
        (!time.is_zero()).then(|| self.told.sold as f64 / time.as_secs_f64())
    }
}

/// The time within which so many of a hundred replies came, in milliseconds.
fn millis(sorted: &[Duration], percent: usize) -> String {
    let nth = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    let time = sorted.get(nth).copied().unwrap_or_default();
    format!("{:.1}ms", time.as_secs_f64() * 1000.0)
}
