//! Examination: properties of the cluster that weaken its locks, or make them slow.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_backend::{BackendError, Fault, Finding, Instant};
use tenure_contenders::{Contenders as _, Examine};

use super::names;
use super::store::Locks;
use crate::client::{
    ALARMS, CORRUPT, Client, DELETE_RANGE, DeleteRangeRequest, Empty, MEMBERS, NO_SPACE, STATUS,
    StatusResponse,
};

/// etcd's quota for the database, unless its operator has set another one.
const USUAL_QUOTA: i64 = 2 << 30;

/// From this part of its quota on, in percent, the size of the database is a finding.
const NEARLY_FULL: i64 = 80;

/// Number of writes of which the median is taken.
const WRITES: usize = 9;

/// etcd asks for disks that are in sync within 10 ms, and a majority of the members to answer within a heartbeat of 100 ms.
const SLOW_WRITE: Duration = Duration::from_millis(25);
const VERY_SLOW_WRITE: Duration = Duration::from_millis(100);

impl Examine for Locks {
    async fn examine(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let status = self.client.call(STATUS, Empty {}).await?;
        let members = self.client.call(MEMBERS, Empty {}).await?;
        let alarms = self.client.call(ALARMS, Empty {}).await?;
        let voting = members.members.iter().filter(|member| !member.is_learner).count();
        let mut findings = self.missing_members(voting).await;
        if voting > 1 && revokes_renewed_leases(&status.version) {
            findings.push(Finding::warning(
                format!("etcd {} may end leases that were just renewed (fixed in 3.4.31 and 3.5.13)", status.version),
                "after a leader was paused for longer than a lease, two clients may hold a lock until the older one \
                 learns of it",
            ));
        }
        for alarm in alarms.alarms {
            let (what, consequence) = match alarm.alarm {
                NO_SPACE => (
                    "a member's database has reached its quota",
                    "no lock can be acquired and no holder evicted until the alarm is disarmed, though holders keep their locks and can \
                     release them",
                ),
                CORRUPT => (
                    "the data of the members differ",
                    "etcd refuses every write, deletions too: no lock can be acquired or released until the alarm is disarmed",
                ),
                _ => continue,
            };
            findings.push(Finding::danger(what, consequence));
        }
        findings.extend(database(&status));
        if self.config.is_anonymous() {
            findings.push(Finding::note(
                "etcd asks for no password",
                "every program that reaches a member can delete the locks",
            ));
        }
        findings.extend(writes(&self.client, || self.now()).await?);
        Ok(findings)
    }
}

impl Locks {
    /// Findings on the members: the cluster has too few, some of those in the URL do not answer, or the URL names only one.
    async fn missing_members(&self, voting: usize) -> Vec<Finding> {
        let mut findings = Vec::new();
        let plural = if voting == 1 { "" } else { "s" };
        if voting < 3 {
            findings.push(Finding::note(
                format!("the cluster has {voting} voting member{plural}"),
                "no lock can be acquired or renewed while one member is down",
            ));
        }
        let asked = self.config.hosts.iter().map(async |host| {
            let client = Client::new(self.config.clone().with_host(host))?;
            client.call(STATUS, Empty {}).await
        });
        for (host, answer) in self.config.hosts.iter().zip(join_all(asked).await) {
            if let Err(error) = answer {
                findings.push(Finding::warning(
                    format!("the member {host} does not answer: {error}"),
                    "without a majority of the members, no lock can be acquired or renewed",
                ));
            }
        }
        if voting > 1 && self.config.hosts.len() == 1 {
            findings.push(Finding::note(
                format!("the URL names one host, and the cluster has {voting} voting members"),
                "while that host is down, this client has no locks, although the others may serve them: name several hosts",
            ));
        }
        findings
    }
}

/// How full the database is.
fn database(status: &StatusResponse) -> Option<Finding> {
    let (quota, whose) = match status.db_size_quota {
        0 => (USUAL_QUOTA, "the usual quota"),
        quota => (quota, "its quota"),
    };
    let part = status.db_size.saturating_mul(100) / quota;
    (part >= NEARLY_FULL).then(|| {
        let mib = |bytes: i64| bytes >> 20;
        Finding::warning(
            format!(
                "the database takes {} MiB, {part} % of {whose} of {} MiB",
                mib(status.db_size),
                mib(quota)
            ),
            "when it is full, no lock can be acquired and no holder evicted: compact and defragment it, or raise the quota",
        )
    })
}

/// How long a write takes: it is answered once a majority of the members has it on disk.
async fn writes(client: &Client, now: impl Fn() -> Instant) -> Result<Option<Finding>, BackendError> {
    let mut took = Vec::new();
    for _ in 0..WRITES {
        let begun = now();
        // A deletion is written to the log of each member, even if the key does not exist.
        let key = names::examined().into();
        match client.call(DELETE_RANGE, DeleteRangeRequest { key }).await {
            Err(error) if error.fault() == Fault::Denied => {
                return Ok(Some(Finding::danger(
                    format!("this user cannot write below `\\x01tenure/`: {error}"),
                    "no lock can be acquired: grant it `readwrite` there",
                )));
            }
            written => _ = written?,
        }
        took.push(now() - begun);
    }
    took.sort_unstable();
    let median = took[WRITES / 2];
    let words = format!("a write takes {} ms (median of {WRITES})", median.as_millis());
    let consequence = "each acquisition and release waits for the disks of a majority of the members";
    if median >= VERY_SLOW_WRITE {
        let worse = format!("{consequence}, and such slow disks make members lose their leader");
        return Ok(Some(Finding::warning(words, worse)));
    }
    Ok((median >= SLOW_WRITE).then(|| Finding::note(words, consequence)))
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
    fn a_database_that_is_nearly_full_is_found() {
        let found = |db_size, db_size_quota| {
            let status = StatusResponse {
                db_size,
                db_size_quota,
                ..StatusResponse::default()
            };
            database(&status).map(|finding| finding.what)
        };
        assert_eq!(found(1_600 << 20, 0), None);
        let usual = found(1_700 << 20, 0).expect("83 %");
        assert_eq!(
            usual,
            "the database takes 1700 MiB, 83 % of the usual quota of 2048 MiB"
        );
        assert_eq!(found(1_700 << 20, 8 << 30), None);
        let own = found(90 << 20, 100 << 20).expect("90 %");
        assert_eq!(own, "the database takes 90 MiB, 90 % of its quota of 100 MiB");
    }

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
