//! Examination: properties of the ensemble that weaken its locks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_backend::{BackendError, Finding};
use tenure_contenders::Examine;
use tenure_endpoint::Host;

use super::pool::USUAL_LEASE;
use super::store::Locks;
use crate::client::{Code, ask, code};
use crate::error::found;

/// The node in which ZooKeeper keeps the list of its servers.
const SERVERS: &str = "/zookeeper/config";

/// What a server answers that is part of no majority.
const NOT_SERVING: &str = "not currently serving requests";

impl Examine for Locks {
    async fn examine(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let session = self.any_session().await?;
        let mut findings = Vec::new();
        let servers = match found(session.client.get_data(SERVERS).await) {
            Err(error) if code(&error) == Some(Code::NO_AUTH) => None,
            servers => servers?.map(|(servers, _)| voting_servers(&servers)),
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
        let asked = self.config.hosts.iter().map(|host| self.examine_server(host));
        findings.extend(join_all(asked).await.into_iter().flatten());
        Ok(findings)
    }
}

impl Locks {
    /// Examines one server, as far as it allows the commands `srvr`, `conf` and `mntr`. By default it allows the first one only.
    async fn examine_server(&self, host: &Host) -> Vec<Finding> {
        match ask(&self.config, host, "srvr").await {
            Ok(answer) if answer.contains(NOT_SERVING) => {
                return vec![without(format!(
                    "the server {host} serves no requests: it follows no leader"
                ))];
            }
            Ok(_) => {}
            Err(error) => return vec![without(error.to_string())],
        }
        // Findings come from what the server tells, so one that fails now is left out.
        let settings = ask(&self.config, host, "conf").await.unwrap_or_default();
        let state = ask(&self.config, host, "mntr").await.unwrap_or_default();
        told(host, self.config.tick_time, &settings, &state)
    }
}

/// What a server's settings and state say. `known` is the tick that the store's URL names.
fn told(host: &Host, known: Duration, settings: &str, state: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let millis = |name| value(settings, name).map(Duration::from_millis);
    match millis("tickTime=") {
        Some(tick) if tick > known * 2 => findings.push(Finding::danger(
            format!("the server {host} has a `tickTime` of {tick:?}, more than twice the {known:?} of `?tick_time=`"),
            "two clients may hold a lock while servers cannot reach each other: name the server's tick with `?tick_time=`",
        )),
        Some(tick) if tick > known => findings.push(Finding::warning(
            format!("the server {host} has a `tickTime` of {tick:?}, more than the {known:?} of `?tick_time=`"),
            "short locks are lost if few answers of ZooKeeper are late: name the server's tick with `?tick_time=`",
        )),
        _ => {}
    }
    if let Some(longest) = millis("maxSessionTimeout=").filter(|longest| *longest < USUAL_LEASE) {
        findings.push(Finding::note(
            format!("the server {host} ends sessions after {longest:?} at most (`maxSessionTimeout`)"),
            "longer leases, such as the usual ones of 30 s, are shortened to that",
        ));
    }
    if let Some(count) = value(state, "zk_fsync_threshold_exceed_count").filter(|count| *count > 0) {
        findings.push(Finding::warning(
            format!("the server {host} has waited {count} times too long for its disk (`fsync.warningthresholdms`)"),
            "requests wait as long, and short locks may be lost: give ZooKeeper's log a disk of its own",
        ));
    }
    findings
}

/// Finding for a server that cannot be used.
fn without(what: String) -> Finding {
    Finding::warning(
        what,
        "fewer servers may fail before no lock can be acquired or renewed",
    )
}

/// The number behind a name, at the beginning of a line.
fn value(answer: &str, name: &str) -> Option<u64> {
    let mut lines = answer.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
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

    #[test]
    fn a_server_tells_what_weakens_locks() {
        let host = Host::new("a", 2181);
        let words = |settings, state| {
            let findings = told(&host, Duration::from_secs(2), settings, state);
            format!("{findings:?}")
        };
        let settings = "clientPort=2181\ntickTime=5000\nmaxSessionTimeout=20000\n";
        let state = "zk_version\t3.8.0\nzk_fsync_threshold_exceed_count\t3\n";
        let all = words(settings, state);
        for expected in [
            "Danger",
            "`tickTime` of 5s",
            "sessions after 20s",
            "waited 3 times",
        ] {
            assert!(all.contains(expected), "{all}");
        }
        let refusal = "conf is not executed because it is not in the whitelist.\n";
        assert_eq!(words(refusal, refusal), "[]");
        assert_eq!(
            words(
                "tickTime=2000\nmaxSessionTimeout=40000",
                "zk_fsync_threshold_exceed_count\t0"
            ),
            "[]"
        );
    }
}
