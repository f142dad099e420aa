//! Examination: properties of the cluster that weaken its locks.

use std::sync::Arc;

use tenure_backend::{BackendError, Finding};

use super::store::Locks;
use crate::client::AlarmType;

impl Locks {
    pub(super) async fn examine(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let (status, members, alarms) = (
            self.client.status().await?,
            self.client.members().await?,
            self.client.alarms().await?,
        );
        let mut findings = Vec::new();
        let voting = members.members.iter().filter(|member| !member.is_learner).count();
        if voting < 3 {
            findings.push(Finding::note(
                format!(
                    "the cluster has {voting} voting member{}",
                    if voting == 1 { "" } else { "s" }
                ),
                "no lock can be acquired or renewed while one member is down",
            ));
        }
        if voting > 1 && revokes_renewed_leases(&status.version) {
            findings.push(Finding::warning(
                format!("etcd {} may end leases that were just renewed (fixed in 3.4.31 and 3.5.13)", status.version),
                "after a leader was paused for longer than a lease, two clients may hold a lock until the older one \
                 learns of it",
            ));
        }
        for alarm in alarms.alarms {
            let what = match alarm.alarm() {
                AlarmType::NoSpace => "a member's database has reached its quota",
                AlarmType::Corrupt => "the data of the members differ",
                AlarmType::None => continue,
            };
            let consequence =
                "etcd refuses to write: no lock can be acquired or released until the alarm is disarmed";
            findings.push(Finding::danger(what, consequence));
        }
        Ok(findings)
    }
}

/// Returns whether a leader of this version that was paused may revoke leases which another leader has renewed.
fn revokes_renewed_leases(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    match [(); 3].map(|()| numbers.next().flatten()) {
        [Some(3), Some(4), Some(patch)] => patch < 31,
        [Some(3), Some(5), Some(patch)] => patch < 13,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_defect_of_leases_are_known() {
        for (version, expected) in [
            ("3.4.23", true),
            ("3.4.31", false),
            ("3.5.12", true),
            ("3.5.13", false),
            ("3.6.0", false),
            ("unknown", false),
        ] {
            assert_eq!(revokes_renewed_leases(version), expected, "{version}");
        }
    }
}
