//! What `tenure doctor` finds: settings of the server, of the role and of the table that weaken the locks.

use tenure_backend::Finding;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::session::PgSession;
use crate::lease_rows::Layout;
use crate::server::error::Failure;
use crate::server::{Config, findings};

/// A standby that is farther behind than this has lost contact, or cannot keep up.
const FAR_BEHIND: i64 = 16 * 1024 * 1024;

/// One row with all that is asked of the server. The last column compares the time zone in January and July. A usual
/// role sees the number of all sessions, but not those of others.
const SETTINGS: &str = "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('default_transaction_read_only') AS read_only,
    current_setting('max_connections')::bigint AS max_connections,
    (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS connections,
    (SELECT string_agg(application_name || ' (' || coalesce(sync_state, 'state unknown') || ')', ', ') FROM pg_stat_replication)
        AS standbys,
    (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint FROM pg_stat_replication) AS behind,
    (SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL) AS subscriptions,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time,
    has_table_privilege($1::text, 'SELECT') AND has_table_privilege($1, 'INSERT')
        AND has_table_privilege($1, 'UPDATE') AS may_write,
    has_table_privilege($1, 'DELETE') AS may_delete,
    (SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass($1)) AS is_unlogged,
    timezone($2::text, date_trunc('year', now()) + interval '4704 hours')
        - timezone($2, date_trunc('year', now()) + interval '336 hours') <> interval '4368 hours' AS sets_clocks";

/// Looks for settings that weaken the locks.
pub(super) async fn examine(session: &mut PgSession, config: &Config) -> Result<Vec<Finding>, Failure> {
    let table = config.table_name();
    // An offset is the same all year.
    let zone = config
        .time_zone
        .as_deref()
        .filter(|zone| !zone.starts_with(['+', '-']));
    let zone = zone.unwrap_or("UTC");
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&zone, Type::TEXT)];
    let rows = session.ask(SETTINGS, &params).await?;
    let Some(row) = rows.first() else {
        return Ok(Vec::new());
    };
    let mut found = durability(row);
    if is_set(row, "is_unlogged") {
        found.push(Finding::danger(
            format!("the table `{table}` is unlogged"),
            "after a crash or a failover it is empty, so held locks can be granted again: `ALTER TABLE … SET LOGGED`",
        ));
    }
    found.extend(standbys(row));
    found.extend(role(row, config));
    if config.layout == Layout::ShedLock && is_set(row, "sets_clocks") {
        found.push(Finding::danger(
            format!("the clocks of the time zone `{zone}` are set twice a year, and the table's times have no zone"),
            "when they are set forward, leases end an hour early, so two can hold the same lock: let all clients use UTC",
        ));
    }
    found.extend(connection(row, session, config));
    Ok(found)
}

fn text<'a>(row: &'a Row, name: &str) -> &'a str {
    row.try_get::<_, Option<&str>>(name)
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn number(row: &Row, name: &str) -> i64 {
    row.try_get::<_, Option<i64>>(name)
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn is_set(row: &Row, name: &str) -> bool {
    row.try_get::<_, Option<bool>>(name)
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn durability(row: &Row) -> Vec<Finding> {
    let mut found = Vec::new();
    if text(row, "fsync") == "off" || text(row, "full_page_writes") == "off" {
        found.push(Finding::danger(
            "the server does not write to stable storage (`fsync` or `full_page_writes` is off)",
            "after a power failure it may have lost locks that are held, or all its data",
        ));
    }
    if text(row, "synchronous_commit") == "off" {
        found.push(Finding::note(
            "the role's `synchronous_commit` is off",
            "Tenure turns it on for each grant and renewal, but a release may be lost in a crash, and its lock then stays until \
             the lease ends",
        ));
    }
    found
}

fn standbys(row: &Row) -> Vec<Finding> {
    let mut found = Vec::new();
    let (standbys, names) = (text(row, "standbys"), text(row, "synchronous_standby_names"));
    let waits = !names.is_empty() && !["off", "local"].contains(&text(row, "synchronous_commit"));
    if !standbys.is_empty() && !waits {
        found.push(Finding::warning(
            format!("the standbys {standbys} are not synchronous"),
            "one that takes over may lack the latest locks, so two can hold the same: set `synchronous_standby_names`",
        ));
    }
    if number(row, "behind") > FAR_BEHIND {
        found.push(Finding::warning(
            format!(
                "a standby is {} MiB behind",
                number(row, "behind") / (1024 * 1024)
            ),
            "if it takes over, it lacks the locks of that time",
        ));
    }
    if number(row, "subscriptions") > 0 {
        found.push(Finding::warning(
            "this server also takes writes from another one, by logical replication",
            "if the table of locks is among them, both servers can grant the same lock",
        ));
    }
    found
}

fn role(row: &Row, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if !is_set(row, "may_write") || config.layout == Layout::Unique && !is_set(row, "may_delete") {
        found.push(Finding::danger(
            format!("the role lacks a permission on `{}`", config.table_name()),
            "no lock can be acquired or released: grant what `tenure schema` lists",
        ));
    }
    if text(row, "isolation") != "read committed" {
        found.push(Finding::warning(
            format!("the role's transactions are `{}` by default", text(row, "isolation")),
            "statements that meet another session fail and are repeated: `ALTER ROLE … SET default_transaction_isolation = \
             'read committed'`",
        ));
    }
    if text(row, "read_only") == "on" {
        found.push(Finding::danger(
            "the role's transactions are read-only by default",
            "no lock can be acquired: `ALTER ROLE … SET default_transaction_read_only = off`",
        ));
    }
    found
}

fn connection(row: &Row, session: &PgSession, config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    if session.is_pooled {
        found.push(Finding::note(
            "a pooler or a proxy stands between this client and the server",
            "statements are not prepared, which costs some time",
        ));
    }
    let (used, most) = (number(row, "connections"), number(row, "max_connections"));
    found.extend(findings::connections(used, most));
    found.extend(findings::clock(number(row, "time")));
    found.extend(findings::encryption(config, is_set(row, "encrypted")));
    found
}
