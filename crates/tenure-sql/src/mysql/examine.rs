//! What `tenure doctor` finds: settings of the server, of the user and of the table that weaken the locks.

use std::collections::HashMap;
use std::time::SystemTime;

use mysql_async::Error;
use mysql_async::prelude::Queryable;
use tenure_backend::Finding;

use super::error::failure;
use super::session::MySqlSession;
use super::statements::statements;
use crate::lease_rows::Layout;
use crate::server::error::Failure;
use crate::server::{Config, Place, TlsMode};

const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_format', 'group_replication_single_primary_mode',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'max_connections', 'read_only', 'rpl_semi_sync_master_enabled',
    'rpl_semi_sync_source_enabled', 'sync_binlog', 'time_zone', 'transaction_isolation', 'tx_isolation', 'wsrep_on')";

const COUNTERS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_clients',
    'Rpl_semi_sync_source_clients', 'Threads_connected', 'wsrep_cluster_size')";

/// The server's time; how far the time of sessions with default settings is from this session's, and from UTC; and the
/// replicas that read from this server, as far as the user may see them.
const STATE: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
    TIMESTAMPDIFF(SECOND, NOW(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone)),
    TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone)),
    (SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%')";

type State = (i64, Option<i64>, Option<i64>, i64);

/// Looks for settings that weaken the locks.
pub(super) async fn examine(session: &mut MySqlSession, config: &Config) -> Result<Vec<Finding>, Failure> {
    let mut server = Server(HashMap::new());
    for names in [SETTINGS, COUNTERS] {
        let rows = session.ask::<(String, String)>(names, Vec::new()).await?;
        server
            .0
            .extend(rows.into_iter().map(|(name, value)| (name.to_lowercase(), value)));
    }
    let state: Option<State> = session.ask(STATE, Vec::new()).await?.pop();
    let (time, from_session, from_utc, replicas) = state.unwrap_or_default();
    let mut found = durability(&server);
    found.extend(other_servers(&server, replicas));
    found.extend(missing_grant(session, config).await?);
    let zone = match config.layout {
        // The columns are independent of the session's time zone, but ShedLock writes UTC into them.
        Layout::ShedLock => from_utc,
        Layout::Unique | Layout::Version => from_session,
    };
    found.extend(times(&server, time, zone.unwrap_or_default(), config));
    found.extend(connections(&server, session, config));
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
            format!("{replicas} replicas follow this server, and it does not wait for them"),
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
    let all = statements(config, session.is_mariadb);
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

fn times(server: &Server, time: i64, zone: i64, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if zone != 0 {
        let hours = zone as f64 / 3600.0;
        let consequence = match config.layout {
            Layout::ShedLock => {
                "ShedLock writes UTC into the table in its own session's time zone, so its leases and Tenure's end \
                                 early or late: let its connections use UTC"
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
    let here = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let difference = (here.as_secs_f64() - time as f64 / 1e6).abs();
    if difference > 1.0 {
        found.push(Finding::note(
            format!("the server's clock differs from this machine's by {difference:.1} s"),
            "leases end by the server's clock; if a replica with this machine's clock took over, they would end early or late",
        ));
    }
    found
}

fn connections(server: &Server, session: &MySqlSession, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    let (used, most) = (
        server.number("threads_connected"),
        server.number("max_connections"),
    );
    if used * 10 > most * 9 {
        found.push(Finding::warning(
            format!("{used} of {most} connections are in use"),
            "clients that need another one are refused",
        ));
    }
    let is_remote = match &config.place {
        Place::Socket(..) => false,
        Place::Hosts(hosts) => !hosts
            .iter()
            .all(|host| ["localhost", "127.0.0.1", "::1"].contains(&host.name())),
    };
    if is_remote && !session.is_encrypted && config.tls == TlsMode::Prefer {
        found.push(Finding::warning(
            "the connection is not encrypted: the server does not offer TLS, and `ssl-mode=preferred` does without",
            "whoever reads the network sees the keys of the locks; add `ssl-mode=verify_identity`",
        ));
    }
    found
}
