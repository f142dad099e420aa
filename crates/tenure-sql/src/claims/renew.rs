//! `renew`: extends the lease of a claim, or reports why the claim is gone. Never inserts or ends a row.

use tenure_backend::{Loss, Phase as Only, RenewReply, RenewRequest};

use super::{Phase, Row, View};

/// Renews the claim if its lease has not ended, and its phase (waiting or granted) is one that the request allows. A
/// downgrade wakes the readers that it lets in.
pub(crate) fn renew(view: &mut View, renewal: &RenewRequest) -> RenewReply {
    let now = view.now();
    if let Err(refusal) = renewal.check(view.profile) {
        return RenewReply::Unknown(refusal);
    }
    let row = match view.row(renewal.claim.id) {
        None => return RenewReply::Gone(Loss::Missing),
        Some(row) => row.clone(),
    };
    match row.phase {
        Phase::Ended | Phase::Watching => return RenewReply::Gone(Loss::Missing),
        Phase::Evicted => return RenewReply::Gone(Loss::Evicted { by: row.evictor }),
        Phase::Waiting | Phase::Granted if !row.is_unexpired(now) => return RenewReply::Gone(Loss::Expired),
        Phase::Waiting if renewal.only == Only::Granted => return RenewReply::Gone(Loss::Missing),
        Phase::Granted if renewal.only == Only::Waiting => return RenewReply::Gone(Loss::Missing),
        Phase::Waiting | Phase::Granted => {}
    }
    let mode = match renewal.mode(row.mode) {
        Ok(mode) => mode,
        Err(refusal) => return RenewReply::Unknown(refusal),
    };
    if mode != row.mode {
        view.request_wake();
    }
    if let Some(run) = renewal.raise {
        view.raise_counter(run.last().get());
    }
    let until = renewal.end(row.expires_at, now + view.profile.limits.lease(renewal.lease));
    view.put(Row {
        mode,
        expires_at: until,
        tokens: renewal.raise.or(row.tokens),
        ..row
    });
    RenewReply::Alive {
        held_from: now,
        lease: until - now,
    }
}
