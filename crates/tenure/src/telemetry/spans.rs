//! The spans in which locks are acquired, held and renewed. Without a subscriber, a span costs one check of a flag.

use tenure_backend::{ClaimRef, FencingToken, LockKey, Mode};
use tracing::Span;
use tracing::field::{Empty, display};

/// The span of an acquisition; [`granted`] records the claim and its token.
pub(crate) fn acquiring(key: &LockKey, mode: Mode) -> Span {
    tracing::debug_span!("acquire", %key, %mode, claim = Empty, token = Empty)
}

/// Records the granted claim in the acquisition's span.
pub(crate) fn granted(span: &Span, claim: &ClaimRef, token: Option<FencingToken>) {
    if !span.is_disabled() {
        span.record("claim", display(claim.id));
        span.record("token", token.map(FencingToken::get));
    }
}

/// The span of work under a lock.
pub(crate) fn holding(at: &ClaimRef, token: Option<FencingToken>) -> Span {
    let token = token.map(FencingToken::get);
    tracing::info_span!("hold", key = %at.key, claim = %at.id, token)
}

pub(crate) fn renewing(claims: usize) -> Span {
    tracing::debug_span!("renew", claims)
}
