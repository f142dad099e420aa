//! The statements of each layout for PostgreSQL.
//!
//! A statement that takes a row looks first: a refused try locks nothing and writes nothing. What it finds is the
//! statement's snapshot and decides nothing. The row is then locked without waiting, and PostgreSQL checks the conditions
//! again on its newest version, with a fresh clock.

use crate::lease_rows::{Dialect, Layout, Statements, Value};
use crate::server::Config;

/// A wait for another session's uncommitted row ends after this time: such a session knows nothing of our advisory locks.
/// What the statement computed before the wait may be as old, so it is taken off its time limit.
const INSERT_WAIT: &str = "20";

/// Settings of the statement's transaction alone: how long it waits, and that it is on stable storage when it is answered,
/// even if the role's default is not.
const SETTINGS: &str = "cfg AS MATERIALIZED (SELECT set_config('lock_timeout', '{wait}ms', true) AS wait, \
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' \
        ELSE current_setting('synchronous_commit') END, true) AS durable)";

/// The end of a statement that takes a row: the row before, the server's time, and what was granted.
const TAKEN: &str = "FROM cfg LEFT JOIN look ON cfg.wait IS NOT NULL AND cfg.durable IS NOT NULL";

const LOOK: &str = "SELECT {row} FROM {table} l WHERE l.{key} = :key";

const LIST: &str = "SELECT {row} FROM {table} l \
    WHERE {held} AND split_part(l.{holder}, ' ', 1) <> 'evicted' AND starts_with(l.{key}::text, :prefix) \
        AND l.{key}::text COLLATE \"C\" > :after \
    ORDER BY l.{key}::text COLLATE \"C\" LIMIT :limit";

/// Locks the claim's own row. A row that another session has locked is not found.
const OWN_ROW: &str = "own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg \
    WHERE l.{key} = :key AND {mine} AND {held} AND cfg.durable IS NOT NULL FOR UPDATE OF l SKIP LOCKED)";

/// Makes the statements of a layout.
pub(super) fn statements(config: &Config) -> Statements {
    let dialect = dialect(config);
    let statement = |template: &str| dialect.statement(template);
    let layout = config.layout;
    let raise = match layout {
        Layout::Version => ", version = greatest(l.version, :raise)",
        Layout::Unique | Layout::ShedLock => "",
    };
    let renew = format!(
        "WITH {SETTINGS}, {OWN_ROW} \
         UPDATE {{table}} l SET {{ends}} = CASE :shorten WHEN 1 THEN least(l.{{ends}}, {{later}}) ELSE {{later}} END{raise} \
         FROM own WHERE l.{{key}} = own.key AND {{held}}"
    );
    let (take, release, evict) = match layout {
        Layout::Version => (VERSION_TAKE, VERSION_RELEASE, VERSION_EVICT),
        Layout::Unique => (ROW_TAKE, UNIQUE_RELEASE, ROW_EVICT),
        Layout::ShedLock => (ROW_TAKE, SHEDLOCK_RELEASE, ROW_EVICT),
    };
    Statements {
        take: statement(&format!(
            "WITH {SETTINGS}, look AS MATERIALIZED ({LOOK}), {take} {TAKEN}"
        )),
        #[cfg(feature = "mysql")]
        insert: None,
        look: statement(LOOK),
        renew: statement(&renew),
        release: statement(release),
        // The release after the lease's end: a textbook client does not take a row whose lease has ended.
        clear: match layout {
            Layout::Version => Some(statement(&VERSION_RELEASE.replace("{held}", "l.locked"))),
            Layout::Unique => Some(statement(&UNIQUE_RELEASE.replace(" AND {held}", ""))),
            Layout::ShedLock => None,
        },
        evict: statement(&format!("WITH {SETTINGS}, {evict}")),
        settle: (layout == Layout::Version).then(|| statement(VERSION_SETTLE)),
        list: statement(LIST),
        sweep: (layout == Layout::Unique).then(|| statement(UNIQUE_SWEEP)),
    }
}

/// `unique` and `shedlock`: inserts the row, or takes over one that has expired.
const ROW_TAKE: &str = "put AS (
    INSERT INTO {table} AS l ({key}, {holder}, {ends}, {changed})
    SELECT :key, :holder, {later}, {now} FROM cfg
    WHERE {now_us} < :until - {wait} * 1000
        AND NOT EXISTS (SELECT FROM look WHERE look.held OR split_part(look.holder, ' ', 1) = :id)
    ON CONFLICT ({key}) DO UPDATE SET {holder} = EXCLUDED.{holder}, {ends} = {later}, {changed} = {now}
    WHERE NOT {held} AND NOT {mine} AND {now_us} < :until
    RETURNING 1)
SELECT look.*, {now_us} AS now, (SELECT count(*) FROM put) AS granted, NULL::bigint AS last";

const UNIQUE_RELEASE: &str = "DELETE FROM {table} l WHERE l.{key} = :key AND {mine} AND {held}";

/// A textbook client deletes such rows as well.
const UNIQUE_SWEEP: &str = "DELETE FROM {table} WHERE {ends} < {now} - :idle * interval '1 microsecond'
    AND {key} IN (SELECT l.{key} FROM {table} l WHERE l.{ends} < {now} - :idle * interval '1 microsecond'
        LIMIT 500 FOR UPDATE SKIP LOCKED)";

/// Whole milliseconds, because ShedLock without `usingDbTime` compares with those of its own clock: to it, the key would stay
/// held until the next one.
const SHEDLOCK_RELEASE: &str =
    "UPDATE {table} l SET {ends} = least(l.{ends}, date_trunc('milliseconds', {now}))
    WHERE l.{key} = :key AND {mine} AND {held}";

const ROW_EVICT: &str = "target AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = :key AND l.{holder} = :target AND {held} AND cfg.durable IS NOT NULL FOR UPDATE OF l)
UPDATE {table} l SET {holder} = :holder, {ends} = {later}, {changed} = {now}
FROM target WHERE l.{key} = target.key AND l.{holder} = :target AND {held}";

/// `version`: takes a row that is free, or inserts a missing one. A new row's version begins at the time in microseconds, so
/// that tokens rise even after the row was deleted. A statement that inserts a key holds the key's advisory lock.
const VERSION_TAKE: &str = "free AS MATERIALIZED (
    SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = :key AND NOT {held} AND NOT {mine} AND {now_us} < :until FOR UPDATE SKIP LOCKED),
taken AS (
    UPDATE {table} l SET locked = true, {holder} = :holder, version = l.version + :tokens, {changed} = {now}, {ends} = {later}
    FROM free WHERE l.{key} = free.key AND {now_us} < :until RETURNING l.version),
inserted AS (
    INSERT INTO {table} AS l ({key}, version, locked, {holder}, {changed}, {ends})
    SELECT :key, greatest(:tokens, {now_us}), true, :holder, {now}, {later} FROM cfg
    WHERE CASE WHEN EXISTS (SELECT FROM look) THEN false
            ELSE pg_try_advisory_xact_lock(hashtextextended(:key, '{table}'::regclass::oid::bigint)) END
        AND {now_us} < :until - {wait} * 1000
    ON CONFLICT ({key}) DO NOTHING RETURNING l.version)
SELECT look.*, {now_us} AS now, (SELECT count(*) FROM taken) + (SELECT count(*) FROM inserted) AS granted,
    coalesce((SELECT version FROM taken), (SELECT version FROM inserted)) AS last";

const VERSION_RELEASE: &str = "WITH own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = :key AND {held} AND {mine} FOR UPDATE)
UPDATE {table} l SET locked = false, {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = NULL
FROM own WHERE l.{key} = own.key";

const VERSION_EVICT: &str = "target AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = :key AND l.{holder} = :target AND l.version = :seen AND {held} AND cfg.durable IS NOT NULL
    FOR UPDATE OF l)
UPDATE {table} l SET {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = {later}
FROM target WHERE l.{key} = target.key AND l.{holder} = :target AND l.version = :seen AND {held}";

/// A textbook client does not know the end of a lease. So the row is freed after the cooldown, unless another claim has taken it.
const VERSION_SETTLE: &str = "UPDATE {table} l SET locked = false, version = l.version + 1, {ends} = NULL
WHERE l.{key} = :key AND l.version = :seen AND l.locked AND l.{holder} IS NULL";

/// How PostgreSQL writes the expressions of a layout. `l` is the row.
pub(crate) fn dialect(config: &Config) -> Dialect {
    let layout = config.layout;
    let zone = config.time_zone.as_deref().unwrap_or("UTC");
    // A name that begins with a sign would be counted westwards, as POSIX does.
    let kind = if zone.starts_with(['+', '-']) {
        "interval "
    } else {
        ""
    };
    // The server's time with its zone, and as the columns have it. ShedLock's have no zone.
    let clock = config.server_clock.as_deref().unwrap_or("clock_timestamp()");
    let (now, time, default) = match layout {
        Layout::ShedLock => (format!("timezone({kind}'{zone}', {clock})"), "timestamp", ""),
        Layout::Unique | Layout::Version => (clock.to_owned(), "timestamptz", " DEFAULT now()"),
    };
    let micros = |time: &str| format!("(extract(epoch FROM {time}) * 1000000)::bigint");
    let left = micros("(l.{ends} - {now})");
    let (held, token, left) = match layout {
        // A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
        Layout::Version => (
            "(l.locked AND NOT coalesce(l.{ends} > l.{changed} AND l.{ends} <= {now}, false))",
            "l.version",
            format!("CASE WHEN l.{{ends}} > l.{{changed}} THEN {left} END"),
        ),
        Layout::Unique | Layout::ShedLock => ("(l.{ends} > {now})", "NULL::bigint", left),
    };
    let placeholder = |number, value: Value<'_>| match value {
        Value::Text(_) => format!("${number}::text"),
        Value::Number(_) => format!("${number}::bigint"),
    };
    let row = "l.{key}::text AS key, l.{holder}::text AS holder, {token} AS token, {held} AS held, {left} AS left_us, \
               {now_us} AS time";
    let expressions = [
        ("table", &*config.table_name()),
        ("wait", INSERT_WAIT),
        ("now", &now),
        ("now_us", &micros(clock)),
        ("later", "({now} + :lease * interval '1 microsecond')"),
        ("mine", "(split_part(coalesce(l.{holder}, ''), ' ', 1) = :id)"),
        ("held", held),
        ("token", token),
        ("left", &left),
        ("row", row),
        ("user", "role"),
        ("numbered", "GENERATED BY DEFAULT AS IDENTITY"),
        ("exact", " COLLATE \"C\""),
        ("text", ""),
        ("time", time),
        ("now_by_default", default),
        ("with", "WITH (fillfactor = 70);\nCOMMENT ON TABLE {table} IS "),
    ];
    Dialect::new(layout, Some(placeholder), &expressions)
}
