//! Statistics over rounds: medians, spreads, shares, and whether two clients differ.

use std::fmt;

/// The middle value; for an even number of values, the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The confidence interval of five or more rounds has at least this confidence. For five rounds it is their whole
/// range.
const SURE: f64 = 0.93;

/// The confidence interval of the median over all possible rounds. Assumes only that each value is as likely below
/// this median as above.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (count, mut cut) = (sorted.len(), 0);
    // Probability that exactly `cut` values are below the median, and that fewer are.
    let (mut exactly, mut at_most) = (0.5_f64.powi(count as i32), 0.0);
    while 2 * (cut + 1) < count {
        at_most += exactly;
        if 1.0 - 2.0 * (at_most + exactly * (count - cut) as f64 / (cut + 1) as f64) < SURE {
            break;
        }
        cut += 1;
        exactly *= (count - cut + 1) as f64 / cut as f64;
    }
    match (sorted.get(cut), sorted.iter().nth_back(cut)) {
        (Some(low), Some(high)) => (*low, *high),
        _ => (0.0, 0.0),
    }
}

/// The width of the median's confidence interval, divided by the median.
pub(crate) fn spread(rounds: &[f64]) -> f64 {
    let (low, high) = interval(rounds);
    if high > low {
        (high - low) / median(rounds)
    } else {
        0.0
    }
}

/// Smallest share of the grants that a worker got, divided by the fair share: 1 if all got the same, 0 if one got
/// nothing.
pub(crate) fn min_share(grants: &[u64]) -> f64 {
    let total: u64 = grants.iter().sum();
    let poorest = grants.iter().min().copied().unwrap_or(0);
    if total == 0 {
        return 0.0;
    }
    poorest as f64 * grants.len() as f64 / total as f64
}

/// A spread above this part of the median makes a figure unreliable.
pub(crate) const TOO_WIDE: f64 = 0.25;

pub(crate) fn is_too_wide(rounds: &[f64]) -> bool {
    spread(rounds) > TOO_WIDE
}

/// Median of the rounds' ratios, and the bounds of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Divides each round's rate by the other client's rate in the same round, so that disturbances of both cancel out.
/// `None` if a ratio is infinite or undefined, because the other client's rate is zero.
pub(crate) fn ratio(rounds: &[f64], others: &[f64]) -> Option<Ratio> {
    let ratios: Vec<f64> = rounds
        .iter()
        .zip(others)
        .map(|(rate, other)| rate / other)
        .collect();
    let (low, high) = interval(&ratios);
    let median = median(&ratios);
    let is_finite = ratios.iter().all(|ratio| ratio.is_finite());
    is_finite.then_some(Ratio { median, low, high })
}

/// The verdict if the bounds of the ratio are too far apart, or a rate of the other client is zero.
pub(crate) const NO_CONCLUSION: &str = "no conclusion";

/// Compares a client's rates to those of another client in alternating rounds. Returns the ratio if both its bounds
/// are on one side of 1. Otherwise returns "alike", or no conclusion if the bounds are far apart or there is no ratio.
pub(crate) fn verdict(rounds: &[f64], others: &[f64]) -> String {
    match ratio(rounds, others) {
        Some(ratio) if ratio.low > 1.0 || ratio.high < 1.0 => ratio.to_string(),
        Some(Ratio { median, low, high }) if (high - low) / median <= TOO_WIDE => "alike".to_owned(),
        _ => NO_CONCLUSION.to_owned(),
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { median, low, high } = self;
        let digits = if *high < 10.0 { 2 } else { 0 };
        write!(f, "{median:.digits$} × ({low:.digits$} to {high:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        for (values, middle) in [
            (&[][..], 0.0),
            (&[4.0], 4.0),
            (&[9.0, 1.0, 5.0], 5.0),
            (&[9.0, 1.0, 5.0, 6.0], 5.5),
            (&[1.0, 1.0, 1.0, 1.0, 1000.0], 1.0),
        ] {
            assert_eq!(median(values), middle, "{values:?}");
        }
    }

    #[test]
    fn the_bounds_narrow_with_the_number_of_rounds() {
        for (count, low, high) in [
            (1, 1, 1),
            (2, 1, 2),
            (3, 1, 3),
            (5, 1, 5),
            (7, 1, 7),
            (8, 1, 8),
            (9, 2, 8),
            (25, 8, 18),
            (41, 15, 27),
        ] {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let bounds = (f64::from(low), f64::from(high));
            assert_eq!(interval(&values), bounds, "{count} rounds");
        }
        assert_eq!(interval(&[]), (0.0, 0.0));
    }

    #[test]
    fn the_spread_is_the_distance_of_the_bounds_over_the_median() {
        assert_eq!(spread(&[100.0, 110.0, 90.0, 100.0, 100.0]), 0.2);
        assert_eq!(spread(&[100.0, 100.0, 100.0, 100.0, 126.0]), 0.26);
        assert_eq!(spread(&[7.0]), 0.0);
        assert_eq!(spread(&[0.0, 0.0]), 0.0);
        assert_eq!(spread(&[0.0, 9.0, 0.0]), f64::INFINITY);
        // Seven slow rounds of 25 do not widen the interval; eight do.
        let mut many = [100.0; 25];
        many[..7].fill(1.0);
        assert_eq!(spread(&many), 0.0);
        many[..8].fill(1.0);
        assert_eq!(spread(&many), 0.99);
    }

    #[test]
    fn the_minimum_share_is_between_zero_and_one() {
        for (grants, share) in [
            (&[5, 5, 5, 5][..], 1.0),
            (&[1, 3], 0.5),
            (&[0, 1000], 0.0),
            (&[0, 0], 0.0),
            (&[12], 1.0),
            (&[], 0.0),
        ] {
            assert_eq!(min_share(grants), share, "{grants:?}");
        }
    }

    #[test]
    fn clients_differ_only_if_both_bounds_agree() {
        let (bare, wild, none) = ([100.0, 104.0, 96.0], [90.0, 140.0, 100.0], [0.0; 3]);
        for (rounds, others, expected) in [
            ([50.0, 52.0, 48.0], bare, "0.50 × (0.50 to 0.50)"),
            ([200.0, 208.0, 230.4], bare, "2.00 × (2.00 to 2.40)"),
            ([1000.0, 1400.0, 1000.0], [100.0, 101.0, 99.0], "10 × (10 to 14)"),
            ([95.0, 106.0, 90.0], bare, "alike"),
            (bare, bare, "alike"),
            // A disturbance of both rates of a round does not change their ratio.
            ([50.0, 25.0, 100.0], [100.0, 50.0, 200.0], "0.50 × (0.50 to 0.50)"),
            (wild, [100.0, 101.0, 99.0], NO_CONCLUSION),
            ([100.0, 101.0, 99.0], wild, NO_CONCLUSION),
            (bare, [0.0, 100.0, 0.0], NO_CONCLUSION),
            (bare, none, NO_CONCLUSION),
            (none, none, NO_CONCLUSION),
        ] {
            assert_eq!(
                verdict(&rounds, &others),
                expected,
                "{rounds:?} compared to {others:?}"
            );
        }
    }
}
