//! Keeping watch for those who wait: listening for rings, looking at keys, renewing registrations.

use std::time::{Duration, Instant};

use tenure_backend::LockKey;

use super::busy;
use super::worker::{Worker, moment};
use crate::claims::REFRESH;
use crate::request::register;
use crate::shown::shown;

/// After a look for which there was no reason, since the rings were for keys of others: for how many times as long
/// as the look took no further rings are heard. So a waiter takes less than a hundredth of a core, however many keys
/// of others change hands.
const REST_PER_WORK: u32 = 128;

/// The longest such rest: whoever has a turn must not sleep through it.
const LONGEST_REST: Duration = Duration::from_millis(8);

/// What being woken costs besides the look itself, in the kernel and in caches.
const WAKING: Duration = Duration::from_micros(22);

impl Worker<'_> {
    /// Whatever is due while somebody waits: news, bars and turns that end, registrations.
    pub(super) fn keep_watch(&mut self) {
        if self.watchers.is_empty() {
            return;
        }
        let now = Instant::now();
        let is_notified = self.resting_until <= now && self.news.take();
        if is_notified || self.look_at <= now {
            let before = time_worked();
            let keys = self.watchers.keys();
            if !self.look(&keys) {
                let worked = WAKING + time_worked().saturating_sub(before);
                self.resting_until = Instant::now() + LONGEST_REST.min(worked * REST_PER_WORK);
            }
            self.look_at = now + self.news.look_every();
        } else {
            let keys = self.watchers.due(self.config.clock.now());
            self.look(&keys);
        }
        if self.refresh_at <= now {
            self.refresh_at = now + REFRESH;
            self.refresh(now);
        }
    }

    /// Looks at keys, and wakes whom it concerns. Whether any of them stands otherwise than at the last look.
    fn look(&mut self, keys: &[LockKey]) -> bool {
        if keys.is_empty() {
            return false;
        }
        let looked = self.try_look(keys);
        self.undo();
        looked.unwrap_or_else(|error| {
            // Whoever is woken asks, and learns what is wrong.
            tracing::debug!(%error, path = %shown(self.path), "a look at the lock file failed");
            self.watchers.wake_all();
            false
        })
    }

    fn try_look(&mut self, keys: &[LockKey]) -> rusqlite::Result<bool> {
        busy::wait_until(Instant::now(), Duration::ZERO);
        self.tables.begin_look()?;
        let at = moment(&*self.config.clock);
        let mut changed = false;
        for key in keys {
            let view = self.tables.glance(key, at)?;
            changed |= self.watchers.wake(&view);
        }
        Ok(changed)
    }

    /// Renews the registrations of all who wait. What fails is tried again at the next time.
    fn refresh(&mut self, now: Instant) {
        let claims = self.watchers.registered();
        if claims.is_empty() || self.lost.is_some() {
            return;
        }
        let renewed = self.begin(now, false).and_then(|()| {
            if self.check_identity().is_err() {
                return Ok(());
            }
            let mut turn = self.turn();
            claims.iter().try_for_each(|claim| register(&mut turn, claim))?;
            let written = turn.written;
            self.count(written);
            self.tables.commit.execute([]).map(drop)
        });
        self.undo();
        if let Err(error) = renewed {
            tracing::debug!(%error, path = %shown(self.path), "waiters could not be registered again");
        }
    }

    pub(super) fn time_to_sleep(&self) -> Option<Duration> {
        if self.watchers.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut until = self.refresh_at.min(self.look_at);
        if now < self.resting_until {
            until = until.min(self.resting_until);
        }
        let due = self.watchers.next_due().map(|due| due - self.config.clock.now());
        let time = until.saturating_duration_since(now);
        Some(due.map_or(time, |due| due.min(time)))
    }
}

/// How long this thread has run so far: on a busy machine far less than the time that has passed.
fn time_worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
