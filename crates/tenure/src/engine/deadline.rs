//! The local deadline of a grant: pure arithmetic on leases.

use std::time::Duration;

use tenure_backend::{Instant, Limits};

/// The shortest valid lease. The safety margins would leave too little of a shorter one.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(30);

/// The default safety margin that is subtracted from a lease in addition to drift: 10 ms, or a hundredth of the lease
/// if that is more.
fn margin(lease: Duration) -> Duration {
    Duration::from_millis(10).max(lease / 100)
}

/// The local deadline of a grant: `held_from + lease − drift − margin`, where drift is the part of the lease that the
/// store's limits name, and the margin is theirs or the default.
pub(crate) fn local_deadline(held_from: Instant, lease: Duration, limits: &Limits) -> Instant {
    held_from
        + lease
            .saturating_sub(lease.mul_f64(f64::from(limits.drift_ppm) / 1e6))
            .saturating_sub(limits.margin.unwrap_or_else(|| margin(lease)))
}

/// Time from the confirmation of a claim to its next renewal: a third of the lease, less up to a tenth of that third.
///
/// `dice` (any number) spreads the renewals of several clients.
pub(crate) fn renew_after(lease: Duration, dice: u64) -> Duration {
    let third = lease / 3;
    third - third / 10_240 * u32::try_from(dice % 1024).unwrap_or(0)
}

/// Time from a failed renewal to the next one: short enough for several renewals in a third of the lease.
pub(crate) fn retry_after(lease: Duration) -> Duration {
    (lease / 30).max(Duration::from_millis(5))
}

/// How late the watchdog may run before it reports that its runtime stalled.
pub(crate) fn stall_after(lease: Duration) -> Duration {
    lease / 6
}

/// Shortest time limit of an unlock. It may reach beyond the local deadline: the store keeps the lock a little longer, so
/// the release may still free the lock.
const MIN_UNLOCK_LIMIT: Duration = Duration::from_millis(100);

/// Time limit of the unlock of a lost lock. This unlock still calls the store, to learn how the lock was lost.
const LOST_UNLOCK_LIMIT: Duration = Duration::from_secs(1);

/// How long an unlock waits for the store: for `left`, the time until the local deadline, after which the lease soon ends
/// the lock, but at most for `most`. `left` is zero for a lost lock.
pub(crate) fn unlock_limit(left: Duration, most: Duration) -> Duration {
    let limit = match left {
        Duration::ZERO => LOST_UNLOCK_LIMIT,
        left => left.max(MIN_UNLOCK_LIMIT),
    };
    limit.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: Limits = Limits::new(Duration::ZERO, SECOND);

    #[test]
    fn an_unlock_waits_until_the_local_deadline_or_for_5_s() {
        for (left, limit) in [(300, 300), (3, 100), (2_000, 2_000), (20_000, 5_000), (0, 1_000)] {
            let [left, limit] = [left, limit].map(Duration::from_millis);
            assert_eq!(unlock_limit(left, 5 * SECOND), limit, "{left:?}");
        }
    }

    #[test]
    fn belief_ends_before_the_lease() {
        for ms in [30, 31, 100, 999, 1_000, 30_000, 86_400_000] {
            let lease = Duration::from_millis(ms);
            let from = Instant::ORIGIN + SECOND;
            let until = local_deadline(from, lease, &LIMITS);
            assert!(
                until > from && until + lease / 100 + Duration::from_millis(10) <= from + lease,
                "{lease:?}"
            );
        }
    }

    #[test]
    fn the_default_lease_is_believed_for_29_4_seconds() {
        let until = local_deadline(Instant::ORIGIN, 30 * SECOND, &LIMITS);
        assert_eq!(until - Instant::ORIGIN, Duration::from_millis(29_400));
    }

    #[test]
    fn a_backends_own_margin_and_drift_replace_the_defaults() {
        let mut limits = LIMITS;
        limits.margin = Some(5 * SECOND);
        let until = local_deadline(Instant::ORIGIN, 100 * SECOND, &limits);
        assert_eq!(until - Instant::ORIGIN, 94 * SECOND);
        limits.drift_ppm = 250_000;
        let until = local_deadline(Instant::ORIGIN, 100 * SECOND, &limits);
        assert_eq!(until - Instant::ORIGIN, 70 * SECOND);
    }

    #[test]
    fn a_lease_shorter_than_its_margins_is_never_believed() {
        assert_eq!(
            local_deadline(Instant::ORIGIN + SECOND, Duration::from_millis(5), &LIMITS),
            Instant::ORIGIN + SECOND
        );
    }

    #[test]
    fn renewal_is_due_at_a_third_or_up_to_a_tenth_of_that_earlier() {
        for dice in [0, 1, 511, 1023, u64::MAX] {
            let after = renew_after(30 * SECOND, dice);
            assert!(after <= 10 * SECOND && after >= 9 * SECOND, "{after:?}");
        }
    }
}
