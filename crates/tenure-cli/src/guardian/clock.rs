//! The clock of all deadlines is the library's, which also counts the time of a suspended machine. All processes of a
//! machine (in one time namespace) read the same time, so they can send each other deadlines.

use std::time::Duration;

use tenure::Instant;
use tenure::backend::{Clock, SystemClock};

/// Longest single sleep. Timers stop while the machine is suspended, so every wait reads the clock at least once a
/// second.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Returns the time on the clock of all deadlines.
pub fn now() -> Instant {
    SystemClock.now()
}

/// Waits until the clock reaches `at`.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub(crate) async fn reached(at: Instant) {
    loop {
        let left = at - now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

/// Serializes an [`Instant`] as nanoseconds, for messages to another process.
pub(super) mod nanos {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tenure::Instant;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    pub(in super::super) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
        at.as_nanos().serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Instant, D::Error> {
        u64::deserialize(from).map(Instant::from_nanos)
    }
}
