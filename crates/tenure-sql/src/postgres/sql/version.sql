-- The statements of `version` that differ from those of `unique`.

-- name: put
-- Takes a row that is free, or inserts a missing one. A new row's version begins at the time in microseconds, so
-- that tokens rise even after the row was deleted. A statement that inserts a key holds the key's advisory lock.
free AS MATERIALIZED (
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
    coalesce((SELECT version FROM taken), (SELECT version FROM inserted)) AS last

-- name: release
WITH own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = {:key} AND {held} AND {mine} FOR UPDATE) {free_own}

-- name: clear
-- The release after the lease's end: a textbook client does not take a row whose lease has ended.
WITH own AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l
    WHERE l.{key} = {:key} AND l.locked AND {mine} FOR UPDATE) {free_own}

-- name: free_own
UPDATE {table} l SET locked = false, {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = NULL
    FROM own WHERE l.{key} = own.key

-- name: evict
WITH {settings}, target AS MATERIALIZED (SELECT l.{key} AS key FROM {table} l CROSS JOIN cfg
    WHERE l.{key} = {:key} AND l.{holder} = {:target} AND l.version = {:seen} AND {held} AND cfg.durable IS NOT NULL
    FOR UPDATE OF l)
UPDATE {table} l SET {holder} = NULL, version = l.version + 1, {changed} = {now}, {ends} = {later}
FROM target WHERE l.{key} = target.key AND l.{holder} = {:target} AND l.version = {:seen} AND {held}

-- name: settle
-- A textbook client does not know the end of a lease. So the row is freed after the cooldown, unless another claim has taken it.
UPDATE {table} l SET locked = false, version = l.version + 1, {ends} = NULL
WHERE l.{key} = {:key} AND l.version = {:seen} AND l.locked AND l.{holder} IS NULL

-- name: raise
-- If the server's clock has gone back, the lease ends before the time of the take, and must not look like one that never ends.
, version = greatest(l.version, {:raise}), {changed} = least(l.{changed}, {now})

-- name: held
-- A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
(l.locked AND NOT coalesce(l.{ends} > l.{changed} AND l.{ends} <= {now}, false))

-- name: token
l.version

-- name: left
CASE WHEN l.{ends} > l.{changed} THEN {until_end} END
