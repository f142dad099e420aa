//! One attempt in the log of its worker.

use std::io;

use tenure::{Guard, Instant};
use tenure_testkit::What;

use crate::journal::{Journal, now};
use crate::line::Noted;
use crate::plant::Plant;

/// One attempt that is being logged: what ends a belief right before it is done, what begins one right after.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    journal: Journal,
    pub(crate) number: u64,
    plant: Option<Plant>,
}

impl Entry {
    pub(crate) fn new(journal: Journal, number: u64, plant: Option<Plant>) -> Entry {
        Entry {
            journal,
            number,
            plant,
        }
    }

    pub(crate) fn event(&self, what: What) -> io::Result<()> {
        self.event_at(now(), what)
    }

    pub(crate) fn event_at(&self, at: Instant, what: What) -> io::Result<()> {
        self.journal.event(at, self.number, what)
    }

    pub(crate) fn note(&self, what: Noted) -> io::Result<()> {
        self.journal.note(now(), self.number, what)
    }

    /// The lock was granted.
    pub(crate) fn acquired(&self, guard: &Guard) -> io::Result<()> {
        let token = match self.plant {
            Some(Plant::Repeat) => tenure::FencingToken::new(7),
            _ => guard.token(),
        };
        let until = self.believes_until(guard);
        self.event(What::Acquired { token, until })?;
        self.deadline(guard, until)
    }

    /// Asks the guard whether it is held, and until when.
    pub(crate) fn sample(&self, guard: &Guard) -> io::Result<()> {
        let since = now();
        let held = guard.is_held() || self.plant == Some(Plant::Believe);
        self.event(What::Sampled { since, held })?;
        self.deadline(guard, self.believes_until(guard))
    }

    /// The holder was told of its loss.
    pub(crate) fn lost(&self) -> io::Result<()> {
        if self.plant == Some(Plant::Believe) {
            return Ok(());
        }
        self.event(What::Lost)
    }

    fn deadline(&self, guard: &Guard, until: Instant) -> io::Result<()> {
        let lease = guard.lease();
        self.note(Noted::Deadline { until, lease })
    }

    fn believes_until(&self, guard: &Guard) -> Instant {
        match self.plant {
            Some(Plant::Believe) => Instant::NEVER,
            _ => guard.believe_until(),
        }
    }
}
