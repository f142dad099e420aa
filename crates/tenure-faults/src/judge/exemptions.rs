//! Exemptions: parts of the history that the injected faults excuse. They are removed before the checker runs.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, EventKind};

use super::attempts::Attempt;
use crate::control::{InjectedFault, Scope, WorkerRun};
use crate::keys::LONGEST_LEASE;
use crate::log::{Observation, ObservationKind, process_of};

/// Time after a stall of its process in which a waiter may be overtaken, because an offered grant goes to the next waiter
/// after 100 ms.
const AFTERMATH: Duration = Duration::from_millis(200);

/// Time without any reply from the store after which waiting claims may have expired. Waiters poll at least three times
/// per lease. A disk that needs seconds for a write causes such a standstill.
const STANDSTILL: Duration = LONGEST_LEASE.checked_div(2).unwrap();

/// Time within which a client detects a silent connection: the time limit of a call, and a quarter. Until then, its
/// waiters may have lost their places in the queue.
const NOTICED: Duration = Duration::from_secs(4);

/// Period in which waiters may have lost their places in a queue.
type Span = (Instant, Instant);

/// What is not checked about one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exemption {
    /// Whether its place in a queue is exempt (L3).
    pub(super) place: bool,
    /// Time from which its holding period is exempt (V1, V2).
    pub(super) holding: Option<Instant>,
    /// Whether its token is exempt (V3).
    pub(super) token: bool,
}

/// Exemptions of a run, by attempt number.
#[derive(Debug, Default)]
pub(super) struct Exemptions(HashMap<u64, Exemption>);

impl Exemptions {
    /// Number of exemptions for which `is` returns true.
    pub(super) fn count(&self, is: impl Fn(&Exemption) -> bool) -> usize {
        self.0.values().filter(|exemption| is(exemption)).count()
    }

    /// Exempts the places of waiters that were disturbed during their wait or up to a lease before: their process was paused,
    /// killed or stalled, or their link or store had a fault or did not reply. Their claims may have expired in the store,
    /// so that they queued again at the tail.
    pub(super) fn places(
        &mut self,
        attempts: &HashMap<u64, Attempt>,
        events: &[Event],
        notes: &[Observation],
        worked: &[WorkerRun],
        fault_log: &[InjectedFault],
    ) {
        let mut spans = disturbances(notes, worked, fault_log);
        for still in standstills(events) {
            spans.values_mut().for_each(|spans| spans.push(still));
        }
        for (number, attempt) in attempts {
            let spans = spans.get(&process_of(*number)).into_iter().flatten();
            let queued = attempt.queued.unwrap_or(Instant::NEVER);
            let mut disturbing = spans.filter(|span| span.0 <= attempt.waited && queued <= span.1);
            self.0.entry(*number).or_default().place =
                attempt.queued.is_some() && disturbing.next().is_some();
        }
    }

    /// Exempts all current holding periods from the time of each fault that the store's profile lists as a hazard.
    ///
    /// - *The data is lost* ([`Hazard::DataLoss`]), or what was not on the disk ([`Hazard::Restart`]): the store
    ///   forgets the holders and grants their keys to others. Holders learn it at their next renewal; the contract promises
    ///   no more. This includes a grant made before the fault whose reply arrived after it.
    /// - *The clock is set forward* ([`Hazard::ClockSet`]): leases end that much earlier in the store, and their holders
    ///   cannot detect it.
    ///
    /// Only these holders are exempt from V1 and V2; later grants are checked in full. V3 has one exemption: a claim that the
    /// store confirmed before the fault may be handed over locally for another 10 ms, with a token older than that of a new
    /// grant by the store. Such a token is not checked. V4 has no exemption.
    pub(super) fn holding_periods(
        &mut self,
        attempts: &HashMap<u64, Attempt>,
        fault_log: &[InjectedFault],
        hazards: &[Hazard],
    ) {
        let named = |deed: &&InjectedFault| deed.hazard.is_some_and(|hazard| hazards.contains(&hazard));
        for deed in fault_log.iter().filter(named) {
            for (&number, attempt) in attempts {
                let Some(granted) = attempt.granted else { continue };
                let before = granted <= deed.from;
                // The local deadline is a little before the end of the lease, so this time is slightly too early.
                let confirmed = attempt.until - attempt.lease;
                if attempt.ended > deed.from && (before || confirmed <= deed.to) {
                    let exemption = self.0.entry(number).or_default();
                    let from = deed.from.max(granted);
                    exemption.holding = Some(exemption.holding.map_or(from, |known| known.min(from)));
                    exemption.token |= !before;
                }
            }
        }
    }

    /// Removes the exempted parts from the history.
    pub(super) fn apply(&self, events: &mut Vec<Event>) {
        events.retain_mut(|event| {
            let exemption = self.0.get(&event.attempt).copied().unwrap_or_default();
            match &mut event.kind {
                EventKind::Queued => !exemption.place,
                EventKind::Sampled { held: true, .. } => exemption.holding.is_none_or(|end| event.at < end),
                EventKind::Acquired { token, .. } if exemption.token => {
                    *token = None;
                    true
                }
                _ => true,
            }
        });
        let ends = self.0.iter().filter_map(|(&attempt, exemption)| {
            let (at, what) = (exemption.holding?, EventKind::Lost);
            Some(Event {
                at,
                attempt,
                kind: what,
            })
        });
        events.extend(ends);
    }
}

/// Periods in which the store did not reply, each extended by a lease.
fn standstills(events: &[Event]) -> Vec<Span> {
    let answers = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::Queued | EventKind::Acquired { .. } | EventKind::Released
        )
    };
    let mut answered: Vec<Instant> = events.iter().filter(answers).map(|event| event.at).collect();
    answered.sort();
    let gaps = answered.windows(2).filter(|gap| gap[1] - gap[0] > STANDSTILL);
    gaps.map(|gap| (gap[0], gap[1] + LONGEST_LEASE)).collect()
}

/// Periods in which each process was disturbed.
fn disturbances(
    notes: &[Observation],
    worked: &[WorkerRun],
    fault_log: &[InjectedFault],
) -> HashMap<u64, Vec<Span>> {
    let mut spans: HashMap<u64, Vec<Span>> = HashMap::new();
    for worked in worked {
        let scope = [Scope::AllWaiters, Scope::Seat(worked.seat)];
        let own = fault_log.iter().filter(|deed| scope.contains(&deed.scope));
        let own = own.map(|deed| (deed.from, deed.to + unnoticed(deed) + LONGEST_LEASE));
        let death = worked.died.map(|died| (died, Instant::NEVER));
        spans.insert(worked.number, own.chain(death).collect());
    }
    for note in notes {
        if let ObservationKind::Stalled { since } = note.what {
            let own = spans.entry(process_of(note.attempt)).or_default();
            own.push((since, note.at + AFTERMATH));
        }
    }
    spans
}

/// Time after a fault until its client detects it. Swallowed bytes are noticed only when a reply is overdue.
fn unnoticed(deed: &InjectedFault) -> Duration {
    match deed.what.starts_with("HalfOpen") || deed.what.starts_with("Swallow") {
        true => NOTICED,
        false => Duration::ZERO,
    }
}
