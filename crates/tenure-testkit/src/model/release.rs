//! Model of releases: which claims a release removes, why, and what becomes of the successor.

use tenure_backend::{Cause, HolderId, Instant, ReleaseReply, ReleaseRequest, ReleaseTarget};

use super::key_state::{CallTimes, PlacedClaim};
use super::state::{Ending, ModelState, Origin, Verdict, ensure};

impl ModelState {
    /// Checks the reply to a release, withdrawal or eviction, and removes the released claims from the model.
    pub(super) fn release(
        &mut self,
        release: &ReleaseRequest,
        at: CallTimes,
        answer: &ReleaseReply,
    ) -> Verdict {
        let ReleaseReply::Done {
            freed,
            others,
            successor,
        } = answer
        else {
            return Err("the call must not fail".to_owned());
        };
        let expected = self.remove_released(release, at);
        let mut names: Vec<String> = freed.iter().map(HolderId::to_string).collect();
        let mut right: Vec<String> = expected.iter().map(|one| one.claim.at.id.to_string()).collect();
        names.sort();
        right.sort();
        ensure!(names == right, "the release frees {right:?}");
        let client = match &release.target {
            ReleaseTarget::Claim(claim) => Some(claim.id.client()),
            ReleaseTarget::All(_) | ReleaseTarget::Foreign { .. } => None,
        };
        let elsewhere = self.key_state(release.target.key()).queue_elsewhere(client);
        ensure!(
            others.is_none_or(|others| others as usize >= elsewhere),
            "{elsewhere} waiters of other clients are in the queue"
        );
        match (&release.successor, successor) {
            (None, None) => Ok(()),
            (Some(successor), Some(reply)) => {
                let origin = Origin::Successor(elsewhere);
                self.check_acquire(&successor.claim, successor.not_after, at, reply, origin)
                    .map_err(|why| format!("successor: {why}"))
            }
            (asked, _) => Err(format!("the request named a successor: {}", asked.is_some())),
        }
    }

    /// Removes the claims that a request releases, and records how they ended. Returns them.
    fn remove_released(&mut self, release: &ReleaseRequest, at: CallTimes) -> Vec<PlacedClaim> {
        let by = match &release.cause {
            Cause::Evicted { by } => Some(by.clone()),
            _ => None,
        };
        let mut cooldown_ends = self.cooldown_ends(at, release.cooldown);
        if self.profile.limits.max_grants.get() == 1 {
            // The store may keep a cooldown, and need not.
            cooldown_ends.earliest = at.before;
        }
        let goes = |one: &mut PlacedClaim| match &release.target {
            ReleaseTarget::Claim(claim) => one.claim.at == *claim,
            ReleaseTarget::All(_) => one.holds(),
            ReleaseTarget::Foreign { .. } => false,
        };
        let key_state = self.key_state(release.target.key());
        let gone: Vec<PlacedClaim> = key_state.placed.extract_if(.., goes).collect();
        if by.is_some() && gone.iter().any(PlacedClaim::holds) {
            key_state.start_cooldown(cooldown_ends);
        }
        for one in &gone {
            // The store must report an eviction to a holder until the holder's lease would have ended. To an evicted
            // waiter it need not report the eviction, only that the claim is gone.
            let until = if one.holds() {
                one.ends.earliest
            } else {
                Instant::ORIGIN
            };
            let fate = by
                .clone()
                .map_or(Ending::Released, |by| Ending::Evicted { by, until });
            self.ended.insert(one.claim.at.clone(), fate);
        }
        if let ReleaseTarget::Claim(claim) = &release.target {
            let until = Instant::ORIGIN;
            let fate = by.map_or(Ending::Released, |by| Ending::Evicted { by, until });
            self.ended.entry(claim.clone()).or_insert(fate);
        }
        gone
    }
}
