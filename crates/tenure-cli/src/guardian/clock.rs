//! The clock that deadlines are told on: the library's, which counts the time the machine is suspended.
//! All processes of one machine and one time namespace share it.

use std::time::Duration;

use tenure::Instant;
use tenure::backend::{Clock, SystemClock};

/// The longest sleep: timers do not count suspend, so the clock is read again this often.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Reads the clock.
pub fn now() -> Instant {
    SystemClock.now()
}

/// Waits until then.
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

/// An instant between two processes: its nanoseconds.
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
