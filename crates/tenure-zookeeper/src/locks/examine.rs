//! Examination: properties of the ensemble that weaken its locks.

use std::sync::Arc;

use tenure_backend::{BackendError, Finding};

use super::store::Locks;
use crate::client::{Code, code};

/// The node in which ZooKeeper keeps the list of its servers.
const SERVERS: &str = "/zookeeper/config";

impl Locks {
    pub(super) async fn examine(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let session = self.any_session().await?;
        let mut findings = Vec::new();
        let servers = match session.client.get_data(SERVERS).await {
            Ok((servers, _)) => Some(voting_servers(&servers)),
            Err(error) if matches!(code(&error), Some(Code::NO_NODE | Code::NO_AUTH)) => None,
            Err(error) => return Err(error),
        };
        if let Some(servers) = servers.filter(|servers| *servers < 3) {
            findings.push(Finding::note(
                format!(
                    "the ensemble has {} voting server{}",
                    servers.max(1),
                    if servers > 1 { "s" } else { "" }
                ),
                "no lock can be acquired or renewed while one server is down",
            ));
        }
        let (granted, least) = (session.timeout(), self.profile.limits.min_lease);
        if granted < least {
            findings.push(Finding::warning(
                format!("ZooKeeper ends sessions after {granted:?} (`maxSessionTimeout`), which is less than six ticks of {:?}", self.config.tick_time),
                "a lock is lost if few answers of ZooKeeper are late: allow longer sessions, or name the server's tick with `?tick_time=`",
            ));
        }
        Ok(findings)
    }
}

/// The number of servers that vote, in the list that ZooKeeper keeps. A lone server is not in it.
fn voting_servers(list: &[u8]) -> usize {
    let list = String::from_utf8_lossy(list);
    let is_voting = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    list.lines().filter(is_voting).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_do_not_vote() {
        let list = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888;2181\n\
                    server.3=c:2888:3888:observer;2181\nversion=100000000";
        assert_eq!(voting_servers(list.as_bytes()), 2);
        assert_eq!(voting_servers(b""), 0);
    }
}
