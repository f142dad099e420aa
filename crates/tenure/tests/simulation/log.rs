//! What is written down of a world as it happens. It becomes text only when somebody reads it.
//! Attempts and beliefs are the checker's events; `world.rs` sorts both into one story.

use std::time::Duration;

use tenure_backend::{
    AcquireReply, Cause, HolderId, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply,
};

/// One thing that happened beside the attempts themselves.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "it is read as text, by Debug")]
pub(crate) enum Note {
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
    /// The store answered where the claim stands, whether or not its client ever hears it.
    Stands {
        client: usize,
        claim: u64,
        standing: Word,
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
        successor: Option<(u64, Word)>,
    },
}

impl Note {
    /// What the store did on behalf of a release.
    pub(crate) fn released(client: usize, departure: &ReleaseRequest, answer: &ReleaseReply) -> Option<Self> {
        let ReleaseReply::Done { freed, successor, .. } = answer else {
            return None;
        };
        let name = |id: &HolderId| match id {
            HolderId::Claim(id) => id.number().to_string(),
            HolderId::Foreign(id) => id.to_string(),
        };
        let successor = departure.successor.as_ref().zip(successor.as_ref());
        Some(Note::Released {
            client,
            who: match &departure.target {
                ReleaseTarget::Claim(claim) => Some(claim.id.number()),
                _ => None,
            },
            cause: match &departure.cause {
                Cause::Unlocked => "unlocks",
                Cause::Withdrawn => "withdraws",
                Cause::Evicted { .. } => "evicts",
            },
            freed: freed.iter().map(name).collect(),
            successor: successor
                .map(|(successor, standing)| (successor.claim.at.id.number(), word(standing))),
        })
    }

    pub(crate) fn renewed(client: usize, claim: u64, answer: &RenewReply) -> Self {
        Note::Renewed {
            client,
            claim,
            alive: matches!(answer, RenewReply::Alive { .. }),
        }
    }
}

/// A standing without its tokens, which come from the wall clock.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "it is read as text, by Debug")]
pub(crate) enum Word {
    Granted { lease: Duration },
    Waits { poll_after: Duration },
    Other(&'static str),
}

pub(crate) fn word(standing: &AcquireReply) -> Word {
    match standing {
        AcquireReply::Granted(grant) => Word::Granted { lease: grant.lease },
        AcquireReply::Waiting { poll_after, .. } => Word::Waits {
            poll_after: *poll_after,
        },
        AcquireReply::Ended => Word::Other("ended"),
        AcquireReply::TooLate => Word::Other("too late"),
        AcquireReply::Recovering => Word::Other("recovering"),
    }
}
