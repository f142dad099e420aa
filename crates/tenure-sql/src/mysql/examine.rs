//! What `tenure doctor` finds: settings of the server, of the user and of the table that weaken the locks.

use mysql_async::Error;
use mysql_async::prelude::Queryable;

use super::error::failure;
use super::session::MySqlSession;
use crate::lease_rows::session::LeaseSession;
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::findings::{Check, Examined, Facts};

const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_format', 'group_replication_single_primary_mode',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'max_connections', 'read_only', 'rpl_semi_sync_master_enabled',
    'rpl_semi_sync_source_enabled', 'sync_binlog', 'time_zone', 'transaction_isolation', 'tx_isolation', 'wsrep_on')";

const COUNTERS: &str = "SHOW STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_clients',
    'Rpl_semi_sync_source_clients', 'Slaves_running', 'Ssl_cipher', 'Threads_connected', 'wsrep_cluster_size')";

/// The server's time, and how far the time of sessions with default settings is from this session's, in hours.
const TIMES: &str = "SELECT 'time', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) UNION ALL
    SELECT 'seconds', TIMESTAMPDIFF(SECOND, NOW(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone))";

/// Above 0 if this session's time zone has another offset in summer than in winter.
const SUMMER: &str =
    "SELECT 'sets_clocks', COUNT(DISTINCT TIMESTAMPDIFF(MINUTE, day, CONVERT_TZ(day, '+00:00', @@session.time_zone))) - 1
    FROM (SELECT CONCAT(YEAR(UTC_DATE()), '-01-15') AS day UNION ALL SELECT CONCAT(YEAR(UTC_DATE()), '-07-15')) days";

/// The replicas that read from this server. A user without the permission `PROCESS` sees none.
const REPLICAS: &str =
    "SELECT 'replicas', COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";

/// The servers that this one replicates, on MySQL. MariaDB counts them in `Slaves_running`. The channels of a group belong
/// to its primary, too.
const SOURCES: &str =
    "SELECT 'slaves_running', COUNT(*) FROM performance_schema.replication_connection_status
    WHERE service_state <> 'OFF' AND channel_name NOT LIKE 'group_replication%'";

/// The statements that need permissions.
const STATEMENTS: [&str; 10] = [
    "take", "insert", "look", "renew", "release", "clear", "evict", "settle", "list", "sweep",
];

const CHECKS: [Check; 11] = [
    Check::danger(
        |server| server.number("innodb_flush_log_at_trx_commit") != 1,
        "the server does not write each transaction to stable storage (`innodb_flush_log_at_trx_commit` is not 1)",
        "after a crash or a power failure it may have lost locks that are held",
    ),
    Check::danger(
        |server| server.is_on("log_bin") && server.number("sync_binlog") != 1,
        "the server does not write its binary log to stable storage (`sync_binlog` is not 1)",
        "after a power failure it undoes the transactions that the log lacks, so it may have lost locks that are held",
    ),
    Check::danger(
        |server| server.is_on("log_bin") && server.text("binlog_format") == "STATEMENT",
        "the binary log takes statements only (`binlog_format` is `STATEMENT`)",
        "the server refuses every acquire and release: set it to `ROW` or `MIXED`",
    ),
    Check::danger(
        |server| server.is_on("read_only"),
        "the server is read-only",
        "no lock can be acquired or released: name the primary server",
    ),
    Check::warning(
        |server| server.number("slaves_running") > 0 && !server.is_on("read_only"),
        "this server is a replica of another one, and accepts writes",
        "clients that name the other server can hold the same lock: let all clients name the primary server, and set \
         `read_only` on its replicas",
    ),
    Check::warning(
        |server| server.number("replicas") > 0 && !waits_for_replicas(server),
        "this server does not wait for its replicas ({replicas} connected)",
        "one that takes over may lack the latest locks, so two can hold the same: set up semi-synchronous replication",
    ),
    Check::danger(
        |server| {
            server.is_on("wsrep_on") && server.number("wsrep_cluster_size") > 1
                || server.is_off("group_replication_single_primary_mode")
        },
        "this server is one of a cluster in which several accept writes",
        "each ends leases by its own clock and shows the others' writes late, so two can hold the same lock: let all \
         clients name the same server",
    ),
    Check::danger(
        |server| server.text("layout") != "shedlock" && !server.text("hours").is_empty(),
        "sessions of other programs are {hours} h from Tenure's (`time_zone` is `{time_zone}`)",
        "what other programs write by NOW() is read as an earlier or a later time, so leases end early or late: add \
         `time_zone=SYSTEM` to the URL, or let those programs use UTC",
    ),
    Check::danger(
        |server| server.number("sets_clocks") > 0,
        "the clocks of the time zone `{zone}` are set twice a year, and the table's times have no zone",
        "when they are set forward, leases end an hour early, so two can hold the same lock: let all clients use UTC, or an \
         offset such as `time_zone=%2B01:00`",
    ),
    Check::warning(
        |server| {
            ["transaction_isolation", "tx_isolation"]
                .map(|name| server.text(name))
                .contains(&"SERIALIZABLE")
        },
        "transactions of other programs are `SERIALIZABLE` by default",
        "each row that they read is locked until they end, and clients of Tenure then find it busy",
    ),
    Check::danger(
        |server| !server.text("refused").is_empty(),
        "the user lacks a permission: {refused}",
        "locks cannot be acquired or released: grant what `tenure schema` lists",
    ),
];

fn waits_for_replicas(server: &Facts) -> bool {
    ["master", "source"].iter().any(|name| {
        server.is_on(&format!("rpl_semi_sync_{name}_enabled"))
            && server.number(&format!("rpl_semi_sync_{name}_clients")) > 0
    })
}

impl Examined for MySqlSession {
    const CHECKS: &'static [Check] = &CHECKS;

    async fn facts(&mut self, config: &Config) -> Result<Facts, Failure> {
        let mut facts = Facts::default();
        // Servers may come without these tables, or not let the user read them.
        for query in [REPLICAS, SOURCES] {
            let _ = facts.ask(self, query).await;
        }
        for query in [SETTINGS, COUNTERS, TIMES, SUMMER] {
            facts.ask(self, query).await?;
        }
        if facts.number("seconds") != 0 {
            facts.add("hours", format!("{:+}", facts.number("seconds") as f64 / 3600.0));
        }
        facts.add("zone", &config.time_zone);
        facts.add("connections", facts.number("threads_connected"));
        facts.add("is_encrypted", !facts.text("ssl_cipher").is_empty());
        let dialect = MySqlSession::dialect(config);
        // The server checks the user's permissions for each statement that it prepares.
        for statement in STATEMENTS.iter().filter_map(|name| dialect.statement(name)) {
            match self.conn.prep(&*statement.sql).await {
                Err(Error::Server(refusal)) if [1044, 1142, 1143].contains(&refusal.code) => {
                    facts.add("refused", refusal.message);
                }
                prepared => drop(prepared.map_err(|error| failure(&error))?),
            }
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(settings: &[(&str, &str)], replicas: i64) -> Vec<String> {
        let mut facts = Facts::default();
        facts.add("innodb_flush_log_at_trx_commit", 1);
        facts.add("replicas", replicas);
        for (name, value) in settings {
            facts.add(name, value);
        }
        facts.find(&CHECKS).into_iter().map(|one| one.what).collect()
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
    fn a_replica_is_found_unless_it_refuses_writes() {
        let replica = |read_only| found(&[("slaves_running", "1"), ("read_only", read_only)], 0);
        assert!(replica("OFF")[0].contains("is a replica of another one"));
        assert!(replica("ON")[0].contains("is read-only"));
        assert_eq!(replica("ON").len(), 1);
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
