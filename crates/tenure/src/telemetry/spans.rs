//! The spans in which locks are taken, held and renewed. Where nobody subscribes they cost a flag.

use tenure_backend::{ClaimRef, FencingToken, LockKey, Mode};
use tracing::Span;
use tracing::field::{Empty, display};

/// An acquisition; the claim and its token are told when it is [granted].
pub(crate) fn acquiring(key: &LockKey, mode: Mode) -> Span {
    tracing::debug_span!("acquire", %key, %mode, claim = Empty, token = Empty)
}

/// Tells an acquisition's span what came of it.
pub(crate) fn granted(span: &Span, claim: &ClaimRef, token: Option<FencingToken>) {
    if !span.is_disabled() {
        span.record("claim", display(claim.id));
        span.record("token", token.map(FencingToken::get));
    }
}

/// Work that is done while a lock is held.
pub(crate) fn holding(at: &ClaimRef, token: Option<FencingToken>) -> Span {
    let token = token.map(FencingToken::get);
    tracing::info_span!("hold", key = %at.key, claim = %at.id, token)
}

/// One call that renews so many claims.
pub(crate) fn renewing(claims: usize) -> Span {
    tracing::debug_span!("renew", claims)
}
