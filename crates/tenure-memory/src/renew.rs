//! Renews claims of one key.

use std::sync::Arc;

use tenure_backend::{Loss, Phase, RenewReply, RenewRequest};

use crate::key_state::KeyState;
use crate::operation::Operation;
use crate::profile::LIMITS;

impl KeyState {
    /// Renews the claim, if it is alive and, where the request names a phase (waiting or held), in that phase. If the
    /// request asks for a downgrade, the claim becomes a read claim, and waiting readers are woken.
    pub(crate) fn renew(&mut self, request: &RenewRequest, op: &mut Operation<'_>) -> RenewReply {
        let RenewRequest {
            claim, only, raise, ..
        } = request;
        let now = op.at.now;
        let asked = now + LIMITS.lease(request.lease);
        let ends;
        if let Some(hold) = self.hold_mut(claim.id) {
            if *only == Phase::Waiting {
                return RenewReply::Gone(Loss::Missing);
            }
            let mode = match request.mode(hold.claim.mode) {
                Ok(mode) => mode,
                Err(refusal) => return RenewReply::Unknown(refusal),
            };
            if mode != hold.claim.mode {
                Arc::make_mut(&mut hold.claim).mode = mode;
                op.freed = true;
            }
            ends = request.end(hold.ends, asked);
            let shortened = ends < hold.ends;
            hold.ends = ends;
            hold.tokens = raise.unwrap_or(hold.tokens);
            if shortened {
                self.wake_all(op);
            }
        } else if let Some(at) = self.position(claim.id) {
            if *only == Phase::Granted {
                return RenewReply::Gone(Loss::Missing);
            }
            let entry = &mut self.waiters_mut().queue[at];
            ends = request.end(entry.ends, asked);
            entry.ends = ends;
        } else {
            return RenewReply::Gone(op.losses.loss(claim.id, now));
        }
        if let Some(range) = raise {
            op.tokens.raise(*range);
        }
        RenewReply::Alive {
            held_from: op.at.client_now,
            lease: ends - now,
        }
    }
}
