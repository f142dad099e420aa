//! What `tenure doctor` finds: settings of the server, of the user and of the table that weaken the locks.

use std::collections::HashMap;

use mysql_async::Error;
use mysql_async::prelude::Queryable;
use tenure_backend::Finding;

use super::error::failure;
use super::session::MySqlSession;
use super::statements::statements;
use crate::lease_rows::Layout;
use crate::server::error::Failure;
use crate::server::{Config, findings};

const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_format', 'group_replication_single_primary_mode',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'max_connections', 'read_only', 'rpl_semi_sync_master_enabled',
    'rpl_semi_sync_source_enabled', 'sync_binlog', 'time_zone', 'transaction_isolation', 'tx_isolation', 'wsrep_on')";

const COUNTERS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_clients',
    'Rpl_semi_sync_source_clients', 'Threads_connected', 'wsrep_cluster_size')";

/// The server's time, and how far the time of sessions with default settings is from this session's, and from UTC.
const TIMES: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    TIMESTAMPDIFF(SECOND, NOW(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone)),
    TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone))";

/// The replicas that read from this server. A user without the permission `PROCESS` sees none.
const REPLICAS: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";

/// Looks for settings that weaken the locks.
pub(super) async fn examine(session: &mut MySqlSession, config: &Config) -> Result<Vec<Finding>, Failure> {
    let mut server = Server(HashMap::new());
    for names in [SETTINGS, COUNTERS] {
        let rows = session.ask::<(String, String)>(names, Vec::new()).await?;
        server
            .0
            .extend(rows.into_iter().map(|(name, value)| (name.to_lowercase(), value)));
    }
    let times: Option<(i64, Option<i64>, Option<i64>)> = session.ask(TIMES, Vec::new()).await?.pop();
    let (time, from_session, from_utc) = times.unwrap_or_default();
    // Servers may come without this table.
    let replicas = session.ask::<(i64,)>(REPLICAS, Vec::new()).await;
    let replicas = replicas
        .ok()
        .and_then(|mut count| count.pop())
        .map_or(0, |(count,)| count);
    let mut found = durability(&server);
    found.extend(other_servers(&server, replicas));
    found.extend(missing_grant(session, config).await?);
    let zone = match config.layout {
        // What Tenure writes into a TIMESTAMP does not depend on its time zone, but ShedLock writes UTC into it.
        Layout::ShedLock => from_utc,
        Layout::Unique | Layout::Version => from_session,
    };
    found.extend(clock(&server, time, zone.unwrap_or_default(), config));
    let (used, most) = (
        server.number("threads_connected"),
        server.number("max_connections"),
    );
    found.extend(findings::connections(used, most));
    found.extend(findings::encryption(config, session.is_encrypted));
    Ok(found)
}

/// Settings and counters by name. A kind of server that lacks one leaves it out.
struct Server(HashMap<String, String>);

impl Server {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    fn is_on(&self, name: &str) -> bool {
        ["ON", "1"].contains(&self.text(name))
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or_default()
    }
}

fn durability(server: &Server) -> Vec<Finding> {
    let mut found = Vec::new();
    if server.number("innodb_flush_log_at_trx_commit") != 1 {
        found.push(Finding::danger(
            "the server does not write each transaction to stable storage (`innodb_flush_log_at_trx_commit` is not 1)",
            "after a crash or a power failure it may have lost locks that are held",
        ));
    }
    if server.is_on("log_bin") && server.number("sync_binlog") != 1 {
        found.push(Finding::danger(
            "the server does not write its binary log to stable storage (`sync_binlog` is not 1)",
            "after a power failure it undoes the transactions that the log lacks, so it may have lost locks that are held",
        ));
    }
    if server.is_on("log_bin") && server.text("binlog_format") == "STATEMENT" {
        found.push(Finding::danger(
            "the binary log takes statements only (`binlog_format` is `STATEMENT`)",
            "the server refuses every acquire and release: set it to `ROW` or `MIXED`",
        ));
    }
    if server.is_on("read_only") {
        found.push(Finding::danger(
            "the server is read-only",
            "no lock can be acquired or released: name the primary server",
        ));
    }
    found
}

fn other_servers(server: &Server, replicas: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let waits = ["master", "source"].iter().any(|name| {
        server.is_on(&format!("rpl_semi_sync_{name}_enabled"))
            && server.number(&format!("rpl_semi_sync_{name}_clients")) > 0
    });
    if replicas > 0 && !waits {
        found.push(Finding::warning(
            format!("this server does not wait for its replicas ({replicas} connected)"),
            "one that takes over may lack the latest locks, so two can hold the same: set up semi-synchronous replication",
        ));
    }
    let is_galera = server.is_on("wsrep_on") && server.number("wsrep_cluster_size") > 1;
    if is_galera || ["OFF", "0"].contains(&server.text("group_replication_single_primary_mode")) {
        found.push(Finding::danger(
            "this server is one of a cluster in which several accept writes",
            "each ends leases by its own clock and shows the others' writes late, so two can hold the same lock: let all \
             clients name the same server",
        ));
    }
    found
}

/// Prepares each statement, for which the server checks the user's permissions.
async fn missing_grant(session: &mut MySqlSession, config: &Config) -> Result<Option<Finding>, Failure> {
    let all = statements(config, session.returns_rows());
    let further = [&all.insert, &all.settle, &all.sweep].into_iter().flatten();
    for statement in [
        &all.take,
        &all.look,
        &all.renew,
        &all.release,
        &all.evict,
        &all.list,
    ]
    .into_iter()
    .chain(further)
    {
        match session.conn.prep(&*statement.sql).await {
            Err(Error::Server(refusal)) if [1044, 1142, 1143].contains(&refusal.code) => {
                return Ok(Some(Finding::danger(
                    format!("the user lacks a permission: {}", refusal.message),
                    "locks cannot be acquired or released: grant what `tenure schema` lists",
                )));
            }
            prepared => drop(prepared.map_err(|error| failure(&error))?),
        }
    }
    Ok(None)
}

fn clock(server: &Server, time: i64, zone: i64, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if zone != 0 {
        let hours = zone as f64 / 3600.0;
        let consequence = match config.layout {
            Layout::ShedLock => {
                "ShedLock's `usingDbTime` writes UTC into its columns of the type TIMESTAMP as if that were its session's time, so \
                 its leases and Tenure's end early or late: let its connections use UTC"
            }
            Layout::Unique | Layout::Version => {
                "what other programs write by NOW() is read as an earlier or a later time, so leases end early or late: add \
                 `time_zone=SYSTEM` to the URL, or let those programs use UTC"
            }
        };
        found.push(Finding::warning(
            format!(
                "sessions of other programs are {hours:+} h from Tenure's (`time_zone` is `{}`)",
                server.text("time_zone")
            ),
            consequence,
        ));
    }
    let isolation = [server.text("transaction_isolation"), server.text("tx_isolation")].concat();
    if isolation == "SERIALIZABLE" {
        found.push(Finding::warning(
            "transactions of other programs are `SERIALIZABLE` by default",
            "each row that they read is locked until they end, and clients of Tenure then find it busy",
        ));
    }
    found.extend(findings::clock(time));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: &[(&str, &str)], replicas: i64) -> Vec<String> {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let found = other_servers(&Server(settings.collect()), replicas);
        found.into_iter().map(|one| one.what.to_string()).collect()
    }

    #[test]
    fn clusters_in_which_several_servers_write_are_found() {
        let galera = |size| found(&[("wsrep_on", "ON"), ("wsrep_cluster_size", size)], 0);
        assert!(galera("3")[0].contains("several accept writes"));
        assert_eq!(galera("1"), [""; 0]);
        let group = |mode| found(&[("group_replication_single_primary_mode", mode)], 0);
        assert!(group("OFF")[0].contains("several accept writes"));
        assert_eq!(group("ON"), [""; 0]);
    }

    #[test]
    fn replicas_are_found_unless_the_server_waits_for_them() {
        assert!(found(&[], 2)[0].contains("(2 connected)"));
        for name in ["master", "source"] {
            let (enabled, clients) = (
                format!("rpl_semi_sync_{name}_enabled"),
                format!("rpl_semi_sync_{name}_clients"),
            );
            let waits = |count| found(&[(&enabled, "ON"), (&clients, count)], 1);
            assert_eq!(waits("1"), [""; 0]);
            assert!(waits("0")[0].contains("does not wait"));
        }
    }
}
