//! Exemptions: parts of the history that the injected faults excuse. They are removed before the checker runs.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, EventKind};

use super::attempts::Attempt;
use crate::control::WorkerRun;
use crate::fault::{InjectedFault, Scope};
use crate::log::{Observation, ObservationKind, process_of};

/// For this time after a stall of its process, a waiter may be overtaken: a grant that the waiter does not take within
/// 100 ms goes to the next waiter.
const STALL_EXEMPTION: Duration = Duration::from_millis(200);

/// Time within which a Redis client detects a silent connection: 1.25 times the default `command_timeout` (3 s),
/// rounded up. Until then, the client's waiters may lose their places in the queue.
const DETECTION_TIME: Duration = Duration::from_secs(4);

/// Period in which waiters may have lost their places in a queue.
type Span = (Instant, Instant);

/// Parts of one attempt that are not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exemption {
    /// True if the attempt's place in a queue is not checked (L3).
    pub(super) place: bool,
    /// Time from which the holding period is not checked (V1, V2).
    pub(super) holding: Option<Instant>,
    /// True if the attempt's token is not checked (V3).
    pub(super) token: bool,
}

/// Exemptions of a run, by attempt number.
#[derive(Debug, Default)]
pub(super) struct Exemptions(HashMap<u64, Exemption>);

impl Exemptions {
    /// Number of attempts whose exemption meets the condition `is`.
    pub(super) fn count(&self, is: impl Fn(&Exemption) -> bool) -> usize {
        self.0.values().filter(|exemption| is(exemption)).count()
    }

    /// Exempts waiters from rule L3 (order) if they were disturbed in their wait or up to a lease before: their process
    /// was paused, killed or stalled, or their link or store had a fault or did not reply. Their claims may have
    /// expired in the store and queued again at the tail.
    pub(super) fn places(
        &mut self,
        attempts: &HashMap<u64, Attempt>,
        events: &[Event],
        notes: &[Observation],
        runs: &[WorkerRun],
        fault_log: &[InjectedFault],
        longest_lease: Duration,
    ) {
        let mut spans = disturbances(notes, runs, fault_log, longest_lease);
        for silence in silences(events, longest_lease) {
            spans.values_mut().for_each(|spans| spans.push(silence));
        }
        for (number, attempt) in attempts {
            let spans = spans.get(&process_of(*number)).into_iter().flatten();
            let queued = attempt.queued.unwrap_or(Instant::NEVER);
            let mut disturbing = spans.filter(|span| span.0 <= attempt.waited && queued <= span.1);
            self.0.entry(*number).or_default().place =
                attempt.queued.is_some() && disturbing.next().is_some();
        }
    }

    /// Exempts the holders at the time of each fault that the store's profile lists as a hazard.
    ///
    /// - All data ([`Hazard::DataLoss`]) or the latest writes ([`Hazard::Restart`], [`Hazard::Failover`]) are lost: the
    ///   store forgets the holders and grants their keys to others. Holders learn of the loss at their next renewal.
    /// - The clock is set forward ([`Hazard::ClockSet`]): the store ends leases early, and holders cannot detect it.
    ///
    /// The checks of overlapping holds (V1) and of the guards' answers (V2) ignore these holders from the start of the
    /// fault.
    ///
    /// A grant after the start of the fault is exempt too if its request was sent before the end of the fault: its
    /// reply was slow, or the client handed the claim over locally within 10 ms. The token of such a grant may be older
    /// than that of a later grant, so the check of rising tokens (V3) ignores it. All other grants are checked in full.
    ///
    /// The check of the fenced registers (V4) has no exemption.
    pub(super) fn holding_periods(
        &mut self,
        attempts: &HashMap<u64, Attempt>,
        fault_log: &[InjectedFault],
        hazards: &[Hazard],
    ) {
        let named = |fault: &&InjectedFault| fault.hazard.is_some_and(|hazard| hazards.contains(&hazard));
        for fault in fault_log.iter().filter(named) {
            for (&number, attempt) in attempts {
                let Some(granted) = attempt.granted else { continue };
                let before = granted <= fault.from;
                // A time slightly before the request for the grant was sent: the local deadline is a little less
                // than a lease after the request.
                let confirmed = attempt.until - attempt.lease;
                if attempt.ended > fault.from && (before || confirmed <= fault.to) {
                    let exemption = self.0.entry(number).or_default();
                    let from = fault.from.max(granted);
                    exemption.holding = Some(exemption.holding.map_or(from, |known| known.min(from)));
                    exemption.token |= !before;
                }
            }
        }
    }

    /// Removes what is exempt: `queued` events, the guards' answers that a key is held, and tokens. Ends exempt holding
    /// periods with `lost` events.
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

/// Periods without a reply of the store in which fair waiters' claims may expire, each extended by a lease.
///
/// Each claim has the longest lease, and was polled at most a third of it before, so none expires in half of it. A disk that
/// needs seconds for a write causes a longer silence.
fn silences(events: &[Event], longest_lease: Duration) -> Vec<Span> {
    let answers = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::Queued | EventKind::Acquired { .. } | EventKind::Released
        )
    };
    let mut answered: Vec<Instant> = events.iter().filter(answers).map(|event| event.at).collect();
    answered.sort();
    let gaps = answered
        .windows(2)
        .filter(|gap| gap[1] - gap[0] > longest_lease / 2);
    gaps.map(|gap| (gap[0], gap[1] + longest_lease)).collect()
}

/// For each worker, the periods in which its waiters may have lost their places.
fn disturbances(
    notes: &[Observation],
    runs: &[WorkerRun],
    fault_log: &[InjectedFault],
    longest_lease: Duration,
) -> HashMap<u64, Vec<Span>> {
    let mut spans: HashMap<u64, Vec<Span>> = HashMap::new();
    for run in runs {
        let scope = [Scope::AllWaiters, Scope::Seat(run.seat)];
        let own = fault_log.iter().filter(|fault| scope.contains(&fault.scope));
        let own = own.map(|fault| (fault.from, fault.to + detection_delay(fault) + longest_lease));
        let death = run.died.map(|died| (died, Instant::NEVER));
        spans.insert(run.number, own.chain(death).collect());
    }
    for note in notes {
        if let ObservationKind::Stalled { since } = note.what {
            let own = spans.entry(process_of(note.attempt)).or_default();
            own.push((since, note.at + STALL_EXEMPTION));
        }
    }
    spans
}

/// Time from the end of a fault until the client detects it. If the network lost bytes, the client detects that only
/// when a reply is overdue.
fn detection_delay(fault: &InjectedFault) -> Duration {
    match fault.what.starts_with("HalfOpen") || fault.what.starts_with("Swallow") {
        true => DETECTION_TIME,
        false => Duration::ZERO,
    }
}
