//! One attempt in the log of its worker.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tenure::{FencingToken, Guard, Instant};
use tenure_testkit::{Event, EventKind};

use super::args::Plant;
use crate::log::{Note, Noted, now};

/// One attempt that is being logged: what ends a belief right before it is done, what begins one right after.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    log: Arc<File>,
    pub(crate) number: u64,
    pub(crate) plant: Option<Plant>,
}

impl Entry {
    /// An attempt in that log, which is made if it is not there.
    pub(crate) fn open(log: &Path, number: u64, plant: Option<Plant>) -> io::Result<Entry> {
        let file = File::options().create(true).append(true).open(log)?;
        Ok(Entry {
            log: Arc::new(file),
            number,
            plant,
        })
    }

    /// Another attempt in the same log.
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

    pub(crate) fn note(&self, what: Noted) -> io::Result<()> {
        let (at, attempt) = (now(), self.number);
        self.write(serde_json::to_string(&Note { at, attempt, what })?)
    }

    /// One call to the system for a line: it is there as a whole, or not at all.
    fn write(&self, line: String) -> io::Result<()> {
        (&*self.log).write_all((line + "\n").as_bytes())
    }

    /// The lock was granted.
    pub(crate) fn acquired(&self, guard: &Guard) -> io::Result<()> {
        let token = match self.plant {
            Some(Plant::Repeat) => FencingToken::new(7),
            _ => guard.token(),
        };
        let until = self.believes_until(guard);
        self.event(EventKind::Acquired { token, until })?;
        self.deadline(guard)
    }

    /// Asks the guard whether it is held, and until when.
    pub(crate) fn sample(&self, guard: &Guard) -> io::Result<()> {
        let since = now();
        let held = guard.is_held() || self.plant == Some(Plant::Believe);
        self.event(EventKind::Sampled { since, held })?;
        self.deadline(guard)
    }

    /// The holder was told of its loss.
    pub(crate) fn lost(&self) -> io::Result<()> {
        match self.plant {
            Some(Plant::Believe) => Ok(()),
            _ => self.event(EventKind::Lost),
        }
    }

    fn deadline(&self, guard: &Guard) -> io::Result<()> {
        let (until, lease) = (self.believes_until(guard), guard.lease());
        self.note(Noted::Deadline { until, lease })
    }

    fn believes_until(&self, guard: &Guard) -> Instant {
        match self.plant {
            Some(Plant::Believe) => Instant::NEVER,
            _ => guard.believe_until(),
        }
    }
}
