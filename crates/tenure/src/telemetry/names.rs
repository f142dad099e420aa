//! The names of the metrics, for dashboards and tests that are written in Rust.

/// Counter: acquisitions that ended, by `outcome`.
pub const ACQUISITIONS: &str = "tenure_acquisitions_total";
/// Histogram, seconds: from the first poll of an acquisition to its end, by `outcome`.
pub const WAIT: &str = "tenure_wait_seconds";
/// Histogram, seconds: from a grant to the end of the guard.
pub const HOLD: &str = "tenure_hold_seconds";
/// Gauge: guards that exist, including those of lost locks.
pub const HELD: &str = "tenure_held";
/// Gauge: acquisitions that wait.
pub const WAITERS: &str = "tenure_waiters";
/// Counter: local hand-overs, i.e. grants to waiters of the same client without a call to the store.
pub const LOCAL_HANDOVERS: &str = "tenure_local_handovers_total";
/// Counter: locks that were lost, by `cause`.
pub const LOST: &str = "tenure_lost_total";
/// Histogram, seconds: duration of a call that renews one or more claims.
pub const RENEWAL: &str = "tenure_renewal_seconds";
/// Counter: renewals of single claims, by `outcome`: `renewed` or `failed`.
pub const RENEWALS: &str = "tenure_renewals_total";
/// Histogram, seconds: when a renewal was confirmed, the time left until the claim's old local deadline.
pub const MARGIN: &str = "tenure_renewal_margin_seconds";
/// Histogram, seconds: how late the watchdog handled due renewals and deadlines.
pub const LATENESS: &str = "tenure_watchdog_lateness_seconds";
/// Counter: locks that could not be released in time, and become free when their lease ends.
pub const UNRETURNED: &str = "tenure_unreturned_total";
