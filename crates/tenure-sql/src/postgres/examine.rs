//! What `tenure doctor` finds: settings of the server, of the role and of the table that weaken the locks.

use super::session::PgSession;
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::findings::{Check, Examined, Facts};

/// All that is asked of the server, as names and texts. The last column compares the time zone in January and July. A usual
/// role sees the number of all sessions, but not those of others. A standby that is more than 16 MiB behind has lost
/// contact, or cannot keep up.
const FACTS: &str = "SELECT key, value FROM (SELECT current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('default_transaction_read_only') AS read_only,
    current_setting('max_connections') AS max_connections,
    (SELECT sum(numbackends) FROM pg_stat_database)::bigint AS connections,
    (SELECT string_agg(application_name || ' (' || coalesce(sync_state, 'state unknown') || ')', ', ') FROM pg_stat_replication)
        AS standbys,
    (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint / 1048576 FROM pg_stat_replication) AS mib_behind,
    (SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL) AS subscriptions,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS is_encrypted,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time,
    has_table_privilege('{table}', 'SELECT') AND has_table_privilege('{table}', 'INSERT')
        AND has_table_privilege('{table}', 'UPDATE') AS may_write,
    has_table_privilege('{table}', 'DELETE') AS may_delete,
    (SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass('{table}')) AS is_unlogged,
    timezone('{zone}', date_trunc('year', now()) + interval '4704 hours')
        - timezone('{zone}', date_trunc('year', now()) + interval '336 hours') <> interval '4368 hours' AS sets_clocks
    ) facts, jsonb_each_text(to_jsonb(facts)) WHERE value IS NOT NULL";

const CHECKS: [Check; 11] = [
    Check::danger(
        |server| server.is_off("fsync") || server.is_off("full_page_writes"),
        "the server does not write to stable storage (`fsync` or `full_page_writes` is off)",
        "after a power failure it may have lost locks that are held, or all its data",
    ),
    Check::note(
        |server| server.is_off("synchronous_commit"),
        "the role's `synchronous_commit` is off",
        "Tenure turns it on for each grant and renewal, but a release may be lost in a crash, and its lock then stays until \
         the lease ends",
    ),
    Check::danger(
        |server| server.is_on("is_unlogged"),
        "the table `{table}` is unlogged",
        "after a crash or a failover it is empty, so held locks can be granted again: `ALTER TABLE … SET LOGGED`",
    ),
    Check::warning(
        |server| !server.text("standbys").is_empty() && !waits_for_standbys(server),
        "the standbys {standbys} are not synchronous",
        "one that takes over may lack the latest locks, so two can hold the same: set `synchronous_standby_names`",
    ),
    Check::warning(
        |server| server.number("mib_behind") >= 16,
        "a standby is {mib_behind} MiB behind",
        "if it takes over, it lacks the locks of that time",
    ),
    Check::warning(
        |server| server.number("subscriptions") > 0,
        "this server also takes writes from another one, by logical replication",
        "if the table of locks is among them, both servers can grant the same lock",
    ),
    Check::danger(
        |server| {
            !server.is_on("may_write") || server.text("layout") == "unique" && !server.is_on("may_delete")
        },
        "the role lacks a permission on `{table}`",
        "no lock can be acquired or released: grant what `tenure schema` lists",
    ),
    Check::warning(
        |server| server.text("isolation") != "read committed",
        "the role's transactions are `{isolation}` by default",
        "statements that meet another session fail and are repeated: `ALTER ROLE … SET default_transaction_isolation = \
         'read committed'`",
    ),
    Check::danger(
        |server| server.is_on("read_only"),
        "the role's transactions are read-only by default",
        "no lock can be acquired: `ALTER ROLE … SET default_transaction_read_only = off`",
    ),
    Check::danger(
        |server| server.text("layout") == "shedlock" && server.is_on("sets_clocks"),
        "the clocks of the time zone `{zone}` are set twice a year, and the table's times have no zone",
        "when they are set forward, leases end an hour early, so two can hold the same lock: let all clients use UTC",
    ),
    Check::note(
        |server| server.is_on("is_pooled"),
        "a pooler or a proxy stands between this client and the server",
        "statements are not prepared, which costs some time",
    ),
];

fn waits_for_standbys(server: &Facts) -> bool {
    !server.text("synchronous_standby_names").is_empty()
        && !["off", "local"].contains(&server.text("synchronous_commit"))
}

impl Examined for PgSession {
    const CHECKS: &'static [Check] = &CHECKS;

    async fn facts(&mut self, config: &Config) -> Result<Facts, Failure> {
        // An offset is the same all year.
        let zone = match config.time_zone.starts_with(['+', '-']) {
            true => "UTC",
            false => &config.time_zone,
        };
        let mut facts = Facts::default();
        let query = FACTS
            .replace("{table}", &config.table_name())
            .replace("{zone}", zone);
        facts.ask(self, &query).await?;
        facts.add("zone", zone);
        facts.add("is_pooled", !self.prepares);
        Ok(facts)
    }
}
