//! What rounds say together: middles, spreads, shares, and whether two clients can be told apart.
//! No clock and no counter lives here.

/// The value in the middle; of an even number of values, the mean of the two in the middle.
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

/// How far the rounds lie apart, as a part of their median.
pub(crate) fn spread(rounds: &[f64]) -> f64 {
    let (low, high) = range(rounds);
    if high > low {
        (high - low) / median(rounds)
    } else {
        0.0
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    (low, high)
}

/// The poorest worker's part of a fair share: 1 if all got the same, 0 if one got nothing.
pub(crate) fn min_share(grants: &[u64]) -> f64 {
    let total: u64 = grants.iter().sum();
    let poorest = grants.iter().min().copied().unwrap_or(0);
    if total == 0 {
        return 0.0;
    }
    poorest as f64 * grants.len() as f64 / total as f64
}

/// Figures that lie farther apart than this part of their median are nothing to rely on.
pub(crate) const TOO_WIDE: f64 = 0.25;

pub(crate) fn is_too_wide(rounds: &[f64]) -> bool {
    spread(rounds) > TOO_WIDE
}

/// What a row says beside the bare statements that ran in turns with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The ratios lie too far apart to conclude anything.
    TooWide,
    /// They lie close together, some above 1 and some below: no difference was shown.
    Alike,
    /// They lie close together, and all on one side of 1: their median.
    Ratio(f64),
}

/// Judges a client's rates by their ratios, each to the bare round that followed it: what slows both does not count.
pub(crate) fn compare(rounds: &[f64], bare: &[f64]) -> Verdict {
    let ratios: Vec<f64> = rounds.iter().zip(bare).map(|(rate, bare)| rate / bare).collect();
    let (low, high) = range(&ratios);
    let compares = ratios.iter().all(|ratio| ratio.is_finite());
    if !compares || is_too_wide(&ratios) {
        Verdict::TooWide
    } else if low <= 1.0 && 1.0 <= high {
        Verdict::Alike
    } else {
        Verdict::Ratio(median(&ratios))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
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
    fn the_spread_is_the_whole_range_as_a_part_of_the_median() {
        assert_eq!(spread(&[100.0, 110.0, 90.0, 100.0, 100.0]), 0.2);
        assert_eq!(spread(&[7.0]), 0.0);
        assert_eq!(spread(&[0.0, 0.0]), 0.0);
        assert_eq!(spread(&[0.0, 9.0, 0.0]), f64::INFINITY);
        assert!(!is_too_wide(&[100.0, 110.0, 90.0, 100.0, 100.0]));
        assert!(is_too_wide(&[100.0, 100.0, 100.0, 100.0, 126.0]));
    }

    #[test]
    fn the_poorest_share_is_one_when_all_got_the_same_and_nothing_when_one_got_nothing() {
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
    fn two_clients_are_told_apart_only_if_every_round_says_the_same() {
        let bare = [100.0, 104.0, 96.0];
        assert_eq!(compare(&[50.0, 52.0, 48.0], &bare), Verdict::Ratio(0.5));
        assert_eq!(compare(&[200.0, 208.0, 230.4], &bare), Verdict::Ratio(2.0));
        assert_eq!(compare(&[95.0, 106.0, 90.0], &bare), Verdict::Alike);
        assert_eq!(compare(&bare, &bare), Verdict::Alike);
    }

    #[test]
    fn what_slows_both_in_the_same_round_does_not_blur_the_comparison() {
        let (slow, bare) = ([50.0, 25.0, 100.0], [100.0, 50.0, 200.0]);
        assert!(is_too_wide(&slow) && is_too_wide(&bare));
        assert_eq!(compare(&slow, &bare), Verdict::Ratio(0.5));
    }

    #[test]
    fn ratios_that_lie_too_far_apart_allow_no_conclusion_even_if_all_are_on_one_side() {
        let (steady, wild) = ([100.0, 101.0, 99.0], [1000.0, 1400.0, 1000.0]);
        assert_eq!(compare(&wild, &steady), Verdict::TooWide);
        assert_eq!(compare(&steady, &wild), Verdict::TooWide);
        for nothing in [[0.0, 100.0, 0.0], [0.0, 0.0, 0.0]] {
            assert_eq!(compare(&steady, &nothing), Verdict::TooWide);
        }
        assert_eq!(compare(&[0.0, 100.0, 0.0], &steady), Verdict::TooWide);
        assert_eq!(compare(&[0.0; 3], &[0.0; 3]), Verdict::TooWide);
    }
}
