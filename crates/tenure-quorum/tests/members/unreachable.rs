//! Test double: a quorum member that cannot be reached.

use std::sync::Arc;

use tenure_backend::{Backend, BackendError, Effect, Fault};
use tenure_testkit::{Exchange, Faults, When};

/// A member whose requests fail before they reach the store, with errors of the given effect: `None` as at a closed
/// port, or `Unknown` as on a broken connection.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) Arc<dyn Backend>, pub(crate) Effect);

impl Faults for Unreachable {
    fn store(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    async fn on(&self, when: When, call: &mut [Exchange]) {
        for element in call.iter_mut().filter(|_| when == When::Before) {
            element.fail(BackendError::new(Fault::Unavailable, self.1, "unreachable"));
        }
    }
}
