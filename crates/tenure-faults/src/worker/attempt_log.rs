//! Logs the events of one attempt.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tenure::{FencingToken, Guard, Instant};
use tenure_testkit::{Event, EventKind};

use super::args::PlantedBug;
use crate::log::{Observation, ObservationKind, now};

/// Logs the events of one attempt in its worker's file. A logged holding period starts right after the grant and ends
/// right before the release.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    log: Arc<File>,
    pub(crate) number: u64,
    pub(crate) plant: Option<PlantedBug>,
}

impl Entry {
    /// Opens a worker's log to record the worker's attempt `number` to lock. Creates the file if needed.
    pub(crate) fn open(log: &Path, number: u64, plant: Option<PlantedBug>) -> io::Result<Entry> {
        let file = File::options().create(true).append(true).open(log)?;
        Ok(Entry {
            log: Arc::new(file),
            number,
            plant,
        })
    }

    /// Returns an entry for attempt `number` in the same file.
    pub(crate) fn with_number(&self, number: u64) -> Entry {
        Entry {
            number,
            ..self.clone()
        }
    }

    pub(crate) fn event(&self, what: EventKind) -> io::Result<()> {
        self.event_at(now(), what)
    }

    pub(crate) fn event_at(&self, at: Instant, what: EventKind) -> io::Result<()> {
        let attempt = self.number;
        self.write(
            Event {
                at,
                attempt,
                kind: what,
            }
            .to_string(),
        )
    }

    pub(crate) fn note(&self, what: ObservationKind) -> io::Result<()> {
        let (at, attempt) = (now(), self.number);
        self.write(serde_json::to_string(&Observation { at, attempt, what })?)
    }

    /// Writes a line with one system call, so that it is either complete or missing.
    fn write(&self, line: String) -> io::Result<()> {
        (&*self.log).write_all((line + "\n").as_bytes())
    }

    /// Logs a grant and its local deadline.
    pub(crate) fn acquired(&self, guard: &Guard) -> io::Result<()> {
        let token = match self.plant {
            Some(PlantedBug::RepeatToken) => FencingToken::new(7),
            _ => guard.token(),
        };
        let until = self.believes_until(guard);
        self.event(EventKind::Acquired { token, until })?;
        self.deadline(guard)
    }

    /// Asks the guard whether the lock is held and until when, and logs the answers.
    pub(crate) fn sample(&self, guard: &Guard) -> io::Result<()> {
        let since = now();
        let held = guard.is_held() || self.plant == Some(PlantedBug::IgnoreDeadline);
        self.event(EventKind::Sampled { since, held })?;
        self.deadline(guard)
    }

    /// Logs that the holder learned that it lost the lock.
    pub(crate) fn lost(&self) -> io::Result<()> {
        match self.plant {
            Some(PlantedBug::IgnoreDeadline) => Ok(()),
            _ => self.event(EventKind::Lost),
        }
    }

    fn deadline(&self, guard: &Guard) -> io::Result<()> {
        let (until, lease) = (self.believes_until(guard), guard.lease());
        self.note(ObservationKind::Deadline { until, lease })
    }

    fn believes_until(&self, guard: &Guard) -> Instant {
        match self.plant {
            Some(PlantedBug::IgnoreDeadline) => Instant::NEVER,
            _ => guard.local_deadline(),
        }
    }
}
