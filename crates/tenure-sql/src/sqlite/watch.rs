//! Work for subscribers (waiters that want wake-ups) between requests: checks their keys, wakes them, renews their
//! rows.

use std::time::{Duration, Instant};

use tenure_backend::LockKey;

use super::busy;
use super::names::display_path;
use super::request::register;
use super::worker::{Worker, moment};
use crate::claims::RENEW_INTERVAL;

/// After a wake-up that finds none of the waiters' keys changed, the process ignores notifications for a pause: the
/// CPU time of the wake-up times this factor, at most `MAX_PAUSE`. So changes of other keys cost a waiting process
/// less than a hundredth of a core, unless `MAX_PAUSE` shortens the pause.
const PAUSE_PER_CPU_TIME: u32 = 128;

/// Longest time for which notifications are ignored. Shorter than a reservation (10 ms), which a waiter must not
/// miss.
const MAX_PAUSE: Duration = Duration::from_millis(8);

/// The CPU time of a wake-up besides the check itself: in the kernel, and by cache misses.
const WAKE_COST: Duration = Duration::from_micros(22);

impl Worker<'_> {
    /// Checks the keys of waiters after notifications, at intervals, and when cooldowns or reservations end. Renews
    /// the registrations of unfair waiters.
    pub(super) fn serve_subscribers(&mut self) {
        if self.subscribers.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_notified = self.ignore_until <= now && self.listener.take();
        if is_notified || self.check_at <= now {
            let before = cpu_time();
            let keys = self.subscribers.keys();
            if !self.check_keys(&keys) {
                let worked = WAKE_COST + cpu_time().saturating_sub(before);
                self.ignore_until = Instant::now() + MAX_PAUSE.min(worked * PAUSE_PER_CPU_TIME);
            }
            self.check_at = now + self.listener.fallback_interval();
        } else {
            let keys = self.subscribers.due(self.config.clock.now());
            self.check_keys(&keys);
        }
        if self.renew_at <= now {
            self.renew_at = now + RENEW_INTERVAL;
            self.renew_registrations(now);
        }
    }

    /// Checks keys and wakes the waiters that should poll. Returns whether any key has changed since its last check.
    fn check_keys(&mut self, keys: &[LockKey]) -> bool {
        if keys.is_empty() {
            return false;
        }
        let checked = self.try_check_keys(keys);
        self.roll_back();
        checked.unwrap_or_else(|error| {
            // All waiters are woken and poll, so their callers get the error if it lasts.
            tracing::debug!(%error, path = %display_path(self.path), "checking the keys of waiters failed");
            self.subscribers.wake_all();
            false
        })
    }

    fn try_check_keys(&mut self, keys: &[LockKey]) -> rusqlite::Result<bool> {
        busy::set_deadline(Instant::now(), Duration::ZERO);
        self.tables.begin_read()?;
        let at = moment(&*self.config.clock);
        let mut changed = false;
        for key in keys {
            let view = self.tables.read_view(key, at)?;
            changed |= self.subscribers.wake(&view);
        }
        Ok(changed)
    }

    /// Renews the registrations of all unfair waiters. After an error, the next call tries again.
    fn renew_registrations(&mut self, now: Instant) {
        let claims = self.subscribers.registered();
        if claims.is_empty() || self.lost.is_some() {
            return;
        }
        let renewed = self.begin(now, false).and_then(|()| {
            if self.check_identity().is_err() {
                return Ok(());
            }
            let mut transaction = self.transaction();
            claims
                .iter()
                .try_for_each(|claim| register(&mut transaction, claim))?;
            let written = transaction.written;
            self.add_sweep_debt(written);
            self.tables.commit.run()
        });
        self.roll_back();
        if let Err(error) = renewed {
            tracing::debug!(%error, path = %display_path(self.path), "waiters could not be registered again");
        }
    }

    /// Time for which the thread may sleep. `None` (no limit) if no waiter wants wake-ups.
    pub(super) fn time_to_sleep(&self) -> Option<Duration> {
        if self.subscribers.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut until = self.renew_at.min(self.check_at);
        if now < self.ignore_until {
            until = until.min(self.ignore_until);
        }
        let due = self
            .subscribers
            .next_due()
            .map(|due| due - self.config.clock.now());
        let time = until.saturating_duration_since(now);
        Some(due.map_or(time, |due| due.min(time)))
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
