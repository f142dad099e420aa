//! The statements of each layout for PostgreSQL.
//!
//! A statement that takes a row looks first: a refused try locks nothing and writes nothing. What it finds is the
//! statement's snapshot and decides nothing. The row is then locked without waiting, and PostgreSQL checks the conditions
//! again on its newest version, with a fresh clock.

use crate::lease_rows::{Dialect, Layout};
use crate::server::Config;
use crate::server::values::Value;

/// Lets one client at a time create a table: the server refuses all but one of several `CREATE TABLE IF NOT EXISTS` that
/// run at once. The server runs a script as one transaction.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('tenure schema', 0));";

/// A wait for another session's uncommitted row ends after this time: such a session knows nothing of our advisory locks.
/// What the statement computed before the wait may be as old, so it is taken off its time limit.
const INSERT_WAIT: &str = "20";

/// Settings of the statement's transaction alone: how long it waits, and that it is on stable storage when it is answered,
/// even if the role's default is not.
const SETTINGS: &str = "cfg AS MATERIALIZED (SELECT set_config('lock_timeout', '{wait}ms', true) AS wait,
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, true) AS durable)";

/// Takes a row. The answer is the row before, the server's time, and what was granted.
const TAKE: &str = "WITH {settings}, look AS MATERIALIZED ({look}), {put}
    FROM cfg LEFT JOIN look ON cfg.wait IS NOT NULL AND cfg.durable IS NOT NULL";

const LOOK: &str = "SELECT {row} FROM {table} l WHERE l.{key} = {:key}";

const LIST: &str = "SELECT {row} FROM {table} l
    WHERE {held} AND split_part(l.{holder}, ' ', 1) <> 'evicted' AND starts_with(l.{key}::text, {:prefix})
        AND l.{key}::text COLLATE \"C\" > {:after}
    ORDER BY l.{key}::text COLLATE \"C\" LIMIT {:limit}";

/// Locks the claim's own row first. A row that another session has locked is not found.
const RENEW: &str =
    "WITH {settings}, own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = {:key} AND {mine} AND {held} AND cfg.durable IS NOT NULL FOR UPDATE OF l SKIP LOCKED)
UPDATE {table} l SET {ends} = CASE {:shorten} WHEN 1 THEN least(l.{ends}, {later}) ELSE {later} END{raise}
FROM own WHERE l.{key} = own.key AND {held}";

/// `unique` and `shedlock`: inserts the row, or takes over one that has expired.
const ROW_TAKE: &str = "put AS (
    INSERT INTO {table} AS l ({key}, {holder}, {ends}, {changed})
    SELECT {:key}, {:holder}, {later}, {now} FROM cfg
    WHERE {now_us} < {:until} - {wait} * 1000
        AND NOT EXISTS (SELECT FROM look WHERE look.held OR split_part(look.holder, ' ', 1) = {:id})
    ON CONFLICT ({key}) DO UPDATE SET {holder} = EXCLUDED.{holder}, {ends} = {later}, {changed} = {now}
    WHERE NOT {held} AND NOT {mine} AND {now_us} < {:until}
    RETURNING 1)
SELECT {before}, (SELECT count(*) FROM put) AS granted, NULL::bigint AS last";

const UNIQUE_CLEAR: &str = "DELETE FROM {table} l WHERE l.{key} = {:key} AND {mine}";

/// A textbook client deletes such rows as well.
const UNIQUE_SWEEP: &str = "DELETE FROM {table} WHERE {ends} < {now} - interval '{idle} microseconds'
    AND {key} IN (SELECT l.{key} FROM {table} l WHERE l.{ends} < {now} - interval '{idle} microseconds'
        LIMIT 500 FOR UPDATE SKIP LOCKED)";

/// Whole milliseconds, because ShedLock without `usingDbTime` compares with those of its own clock: to it, the key would stay
/// held until the next one.
const SHEDLOCK_RELEASE: &str =
    "UPDATE {table} l SET {ends} = least(l.{ends}, date_trunc('milliseconds', {now}))
    WHERE l.{key} = {:key} AND {mine} AND {held}";

const ROW_EVICT: &str =
    "WITH {settings}, target AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = {:key} AND l.{holder} = {:target} AND {held} AND cfg.durable IS NOT NULL FOR UPDATE OF l)
UPDATE {table} l SET {holder} = {:holder}, {ends} = {later}, {changed} = {now}
FROM target WHERE l.{key} = target.key AND l.{holder} = {:target} AND {held}";

/// `version`: takes a row that is free, or inserts a missing one. A new row's version begins at the time in microseconds, so
/// that tokens rise even after the row was deleted. A statement that inserts a key holds the key's advisory lock.
const VERSION_TAKE: &str = "free AS MATERIALIZED (
    SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = {:key} AND NOT {held} AND NOT {mine} AND {now_us} < {:until} FOR UPDATE SKIP LOCKED),
taken AS (
    UPDATE {table} l SET locked = true, {holder} = {:holder}, version = l.version + {:tokens}, {changed} = {now}, {ends} = {later}
    FROM free WHERE l.{key} = free.key AND {now_us} < {:until} RETURNING l.version),
inserted AS (
    INSERT INTO {table} AS l ({key}, version, locked, {holder}, {changed}, {ends})
    SELECT {:key}, greatest({:tokens}, {now_us}), true, {:holder}, {now}, {later} FROM cfg
    WHERE CASE WHEN EXISTS (SELECT FROM look) THEN false
            ELSE pg_try_advisory_xact_lock(hashtextextended({:key}, '{table}'::regclass::oid::bigint)) END
        AND {now_us} < {:until} - {wait} * 1000
    ON CONFLICT ({key}) DO NOTHING RETURNING l.version)
SELECT {before}, (SELECT count(*) FROM taken) + (SELECT count(*) FROM inserted) AS granted,
    coalesce((SELECT version FROM taken), (SELECT version FROM inserted)) AS last";

const VERSION_RELEASE: &str = "WITH own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = {:key} AND {held} AND {mine} FOR UPDATE) {free_own}";

const VERSION_CLEAR: &str = "WITH own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = {:key} AND l.locked AND {mine} FOR UPDATE) {free_own}";

const VERSION_FREE_OWN: &str =
    "UPDATE {table} l SET locked = false, {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = NULL
    FROM own WHERE l.{key} = own.key";

const VERSION_EVICT: &str =
    "WITH {settings}, target AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = {:key} AND l.{holder} = {:target} AND l.version = {:seen} AND {held} AND cfg.durable IS NOT NULL
    FOR UPDATE OF l)
UPDATE {table} l SET {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = {later}
FROM target WHERE l.{key} = target.key AND l.{holder} = {:target} AND l.version = {:seen} AND {held}";

/// A textbook client does not know the end of a lease. So the row is freed after the cooldown, unless another claim has taken it.
const VERSION_SETTLE: &str = "UPDATE {table} l SET locked = false, version = l.version + 1, {ends} = NULL
WHERE l.{key} = {:key} AND l.version = {:seen} AND l.locked AND l.{holder} IS NULL";

/// The texts of `unique`, of which the other layouts replace some. `l` is the row.
const ROW: [(&str, &str); 27] = [
    ("take", TAKE),
    ("look", LOOK),
    ("list", LIST),
    ("renew", RENEW),
    ("evict", ROW_EVICT),
    ("settings", SETTINGS),
    ("put", ROW_TAKE),
    ("wait", INSERT_WAIT),
    ("now", "{clock}"),
    ("now_us", "(extract(epoch FROM {clock}) * 1000000)::bigint"),
    ("later", "({now} + {:lease} * interval '1 microsecond')"),
    ("mine", "(split_part(coalesce(l.{holder}, ''), ' ', 1) = {:id})"),
    ("held", "(l.{ends} > {now})"),
    ("token", "NULL::bigint"),
    ("left", "{until_end}"),
    (
        "until_end",
        "(extract(epoch FROM (l.{ends} - {now})) * 1000000)::bigint",
    ),
    (
        "row",
        "l.{key}::text AS key, l.{holder}::text AS holder, {token} AS token, {held} AS held, {left} AS left_us, {now_us}",
    ),
    (
        "before",
        "look.key, look.holder, look.token, look.held, look.left_us, {now_us}",
    ),
    ("raise", ""),
    ("user", "role"),
    ("numbered", "GENERATED BY DEFAULT AS IDENTITY"),
    ("exact", " COLLATE \"C\""),
    ("time", "timestamptz"),
    ("now_by_default", " DEFAULT now()"),
    ("text", ""),
    ("one_at_a_time", ONE_AT_A_TIME),
    ("with", "WITH (fillfactor = 70);\nCOMMENT ON TABLE {table} IS "),
];

const UNIQUE: &[(&str, &str)] = &[
    ("release", "{clear} AND {held}"),
    ("clear", UNIQUE_CLEAR),
    ("sweep", UNIQUE_SWEEP),
];

const VERSION: &[(&str, &str)] = &[
    ("put", VERSION_TAKE),
    ("release", VERSION_RELEASE),
    // The release after the lease's end: a textbook client does not take a row whose lease has ended.
    ("clear", VERSION_CLEAR),
    ("free_own", VERSION_FREE_OWN),
    ("evict", VERSION_EVICT),
    ("settle", VERSION_SETTLE),
    ("raise", ", version = greatest(l.version, {:raise})"),
    // A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
    (
        "held",
        "(l.locked AND NOT coalesce(l.{ends} > l.{changed} AND l.{ends} <= {now}, false))",
    ),
    ("token", "l.version"),
    ("left", "CASE WHEN l.{ends} > l.{changed} THEN {until_end} END"),
];

/// Its times have no zone.
const SHEDLOCK: &[(&str, &str)] = &[
    ("release", SHEDLOCK_RELEASE),
    ("now", "timezone({zone}, {clock})"),
    ("time", "timestamp"),
    ("now_by_default", ""),
];

/// How PostgreSQL writes the table and the statements of a layout.
pub(super) fn dialect(config: &Config) -> Dialect {
    let of_layout = match config.layout {
        Layout::Unique => UNIQUE,
        Layout::Version => VERSION,
        Layout::ShedLock => SHEDLOCK,
    };
    // A name that begins with a sign would be counted westwards, as POSIX does.
    let zone = match config.time_zone.starts_with(['+', '-']) {
        true => format!("interval '{}'", config.time_zone),
        false => format!("'{}'", config.time_zone),
    };
    let of_config = [
        ("table", &*config.table_name()),
        ("clock", &config.server_clock),
        ("zone", &zone),
        ("idle", &config.sweep_after.as_micros().to_string()),
    ];
    let placeholder = |number, value: Value<'_>| match value {
        Value::Text(_) => format!("${number}::text"),
        Value::Number(_) => format!("${number}::bigint"),
    };
    let texts = ROW.iter().chain(of_layout).chain(&of_config);
    Dialect::new(config.layout, Some(placeholder), texts)
}
