//! What must be given back, whatever becomes of the future that does it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Cause, Claim};

use super::in_place::InPlace;
use super::tries::{Left, Release};
use crate::line::Line;

/// A release that must be carried out. Dropped before it is, it is seen through by the client's own task.
pub(crate) struct Departing(Option<Release>);

/// Carries several releases out in one call.
pub(crate) async fn see_through_together(departing: Vec<Departing>) {
    let releases = departing
        .into_iter()
        .filter_map(|mut departing| departing.0.take());
    Release::see_through_together(releases).await;
}

impl Departing {
    /// The holder is done, and the heir may have the key at once.
    pub(crate) fn new(line: Arc<Line>, claim: Arc<Claim>, heir: Option<Arc<Claim>>) -> Self {
        Departing(Some(Release::new(line, claim, Cause::Unlocked, heir)))
    }

    /// The claim is given up, whatever state it is in.
    pub(crate) fn withdrawing(line: Arc<Line>, claim: Arc<Claim>) -> Self {
        Departing(Some(Release::new(line, claim, Cause::Withdrawn, None)))
    }

    /// Carries the release out, repeating it for `limit` while nobody knows whether it took effect.
    ///
    /// With an heir it is taken over by the client's own task after the offer window: waiters depend on it, so it must not
    /// depend on the caller's future being polled.
    ///
    /// # Cancel safety
    /// Dropped on the way, the rest is done by the client's own task.
    pub(crate) async fn run(mut self, limit: Duration) -> Result<Left, BackendError> {
        if let Some(release) = self.0.take_if(|release| release.names_an_heir()) {
            return InPlace::new(release, limit).await;
        }
        let Some(release) = &mut self.0 else {
            return Ok(Left::Absent);
        };
        let answer = release.run(limit).await;
        if answer.is_ok() {
            self.0 = None;
        }
        answer
    }

    /// Leaves it to the lease: there is no runtime to carry it out on.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }

    /// Carries the release out, for as long as the claim may last; a withdrawal also for as long as it may still be placed.
    pub(crate) async fn see_through(mut self) {
        if let Some(release) = self.0.take() {
            release.see_through().await;
        }
    }
}

impl Drop for Departing {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            let line = release.line().clone();
            line.engine.watchdog.give_back(Departing(Some(release)));
        }
    }
}

impl fmt::Debug for Departing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Departing")
            .field(&self.0.as_ref().map(Release::at))
            .finish()
    }
}
