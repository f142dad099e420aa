//! Log entries of a simulation, formatted only when the log is shown. `simulation.rs` adds the checker's events.

use std::time::Duration;

use tenure_backend::{
    AcquireReply, Cause, HolderId, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply,
};

/// A log entry other than an event for the checker.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "it is read as text, by Debug")]
pub(crate) enum LogEntry {
    Paused {
        client: usize,
        time: Duration,
    },
    Jumped {
        client: usize,
        time: Duration,
    },
    Died {
        client: usize,
    },
    StoreDown {
        time: Duration,
        loses_data: bool,
    },
    WeatherEnds,
    Closing {
        client: usize,
    },
    Violation {
        rule: &'static str,
        what: String,
    },
    /// The store's reply to an acquire call, whether or not the reply reaches the client.
    Stands {
        client: usize,
        claim: u64,
        standing: ReplySummary,
    },
    Renewed {
        client: usize,
        claim: u64,
        alive: bool,
    },
    Released {
        client: usize,
        who: Option<u64>,
        cause: &'static str,
        freed: Vec<String>,
        successor: Option<(u64, ReplySummary)>,
    },
}

impl LogEntry {
    /// Makes the entry for a release; `None` if the store did not carry it out.
    pub(crate) fn released(client: usize, departure: &ReleaseRequest, answer: &ReleaseReply) -> Option<Self> {
        let ReleaseReply::Done { freed, successor, .. } = answer else {
            return None;
        };
        let name = |id: &HolderId| match id {
            HolderId::Claim(id) => id.number().to_string(),
            HolderId::Foreign(id) => id.to_string(),
        };
        let successor = departure.successor.as_ref().zip(successor.as_ref());
        Some(LogEntry::Released {
            client,
            who: match &departure.target {
                ReleaseTarget::Claim(claim) => Some(claim.id.number()),
                _ => None,
            },
            cause: match &departure.cause {
                Cause::Unlocked => "unlocks",
                Cause::Withdrawn => "withdraws",
                _ => "evicts",
            },
            freed: freed.iter().map(name).collect(),
            successor: successor
                .map(|(successor, standing)| (successor.claim.at.id.number(), word(standing))),
        })
    }

    pub(crate) fn renewed(client: usize, claim: u64, answer: &RenewReply) -> Self {
        LogEntry::Renewed {
            client,
            claim,
            alive: matches!(answer, RenewReply::Alive { .. }),
        }
    }
}

/// A reply to an acquire call, without the tokens: their values depend on the wall clock.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "it is read as text, by Debug")]
pub(crate) enum ReplySummary {
    Granted { lease: Duration },
    Waiter { poll_after: Duration },
    Other(&'static str),
}

pub(crate) fn word(standing: &AcquireReply) -> ReplySummary {
    match standing {
        AcquireReply::Granted(grant) => ReplySummary::Granted { lease: grant.lease },
        AcquireReply::Waiting { poll_after, .. } => ReplySummary::Waiter {
            poll_after: *poll_after,
        },
        AcquireReply::Ended => ReplySummary::Other("ended"),
        AcquireReply::TooLate => ReplySummary::Other("too late"),
        AcquireReply::Recovering => ReplySummary::Other("recovering"),
    }
}
