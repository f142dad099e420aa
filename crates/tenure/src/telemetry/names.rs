//! The names of the metrics, for dashboards and tests that are written in Rust.

/// Counter: acquisitions that ended, by `outcome`.
pub const ACQUISITIONS: &str = "tenure_acquisitions_total";
/// Histogram, seconds: from the first poll of an acquisition to its end, by `outcome`.
pub const WAIT: &str = "tenure_wait_seconds";
/// Histogram, seconds: from the grant to the end of its guard.
pub const HOLD: &str = "tenure_hold_seconds";
/// Gauge: guards that are alive.
pub const HELD: &str = "tenure_held";
/// Gauge: acquisitions that wait.
pub const WAITERS: &str = "tenure_waiters";
/// Counter: local hand-overs, grants made in memory without a call to the store.
pub const PASSED: &str = "tenure_local_handovers_total";
/// Counter: locks that were lost, by `cause`.
pub const LOST: &str = "tenure_lost_total";
/// Histogram, seconds: how long a renewal took, for all claims of one call.
pub const RENEWAL: &str = "tenure_renewal_seconds";
/// Counter: claims that were to be renewed, by `outcome`.
pub const RENEWALS: &str = "tenure_renewals_total";
/// Histogram, seconds: time left until a claim's local deadline when its renewal was confirmed.
pub const MARGIN: &str = "tenure_renewal_margin_seconds";
/// Histogram, seconds: how late the watchdog handled due claims.
pub const LATENESS: &str = "tenure_watchdog_lateness_seconds";
/// Counter: locks that could not be released in time, and become free when their lease ends.
pub const UNRETURNED: &str = "tenure_unreturned_total";
