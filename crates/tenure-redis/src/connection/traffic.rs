//! What travels on one connection: the calls that wait for a reply, and the time at which the server last sent something.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Shared by the users of a connection and by its stream, which sees each arrival first.
pub(crate) struct Traffic {
    /// Number of callers that wait for a reply.
    in_flight: AtomicUsize,
    opened: Instant,
    /// Time of the last arrival, in microseconds after `opened`.
    heard_micros: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            in_flight: AtomicUsize::new(0),
            opened: Instant::now(),
            heard_micros: AtomicU64::new(0),
        }
    }
}

impl Traffic {
    /// Number of callers that wait for a reply.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn call_begins(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn call_ends(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that bytes of the server have arrived.
    pub(crate) fn heard(&self, now: Instant) {
        let micros = (now - self.opened).as_micros() as u64;
        self.heard_micros.store(micros, Ordering::Relaxed);
    }

    /// Resolves when nothing has arrived for `limit`, counted from the call of this function or from a later arrival;
    /// at the latest after `longest`.
    pub(crate) async fn silence(&self, limit: Duration, longest: Duration) {
        let begun = Instant::now();
        loop {
            let heard = self.opened + Duration::from_micros(self.heard_micros.load(Ordering::Relaxed));
            let rest = limit.saturating_sub(heard.max(begun).elapsed());
            let rest = rest.min(longest.saturating_sub(begun.elapsed()));
            if rest.is_zero() {
                return;
            }
            // sleep: no event tells that nothing arrives.
            tokio::time::sleep(rest).await;
            // If the runtime has stalled, this lets it read what has arrived meanwhile.
            tokio::task::yield_now().await;
        }
    }
}
