//! `examine`: findings of all members, and of the quorum itself.

use std::sync::Arc;

use tenure_backend::{BackendError, Effect, Finding};

use crate::backend::Quorum;
use crate::votes::too_few;

impl Quorum {
    /// Examines every member. The findings number the members from 1, in the order of the configuration.
    pub(crate) async fn examine_all(self: &Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let mut replies = self.members.ask_all(|member| member.store.clone().examine());
        let mut answered: Vec<Option<Vec<Finding>>> = vec![None; members];
        let mut errors = Vec::new();
        while let Some((member, reply)) = replies.next().await {
            match reply {
                Ok(findings) => answered[member] = Some(findings),
                Err(error) => errors.push(error),
            }
        }
        if answered.iter().flatten().count() < majority {
            return Err(too_few(members, majority, errors, Effect::None));
        }
        let mut findings = Vec::new();
        if members % 2 == 0 {
            let spare = members - majority;
            findings.push(Finding::note(
                format!("the quorum has {members} servers, an even number"),
                format!(
                    "it survives the loss of {spare}, like one of {} servers",
                    members - 1
                ),
            ));
        }
        for (number, of_member) in (1..).zip(answered) {
            match of_member {
                Some(list) => findings.extend(list.into_iter().map(|finding| {
                    let what = format!("server {number}: {}", finding.what);
                    Finding::new(finding.severity, what, finding.consequence)
                })),
                None => findings.push(Finding::warning(
                    format!("server {number} does not answer"),
                    "fewer servers may fail before no lock can be taken",
                )),
            }
        }
        Ok(findings)
    }
}
