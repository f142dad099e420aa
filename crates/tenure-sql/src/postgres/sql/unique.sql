-- The statements that `unique` alone has.

-- name: release
{clear} AND {held}

-- name: clear
DELETE FROM {table} l WHERE l.{key} = {:key} AND {mine}

-- name: sweep
-- A textbook client deletes such rows as well.
DELETE FROM {table} WHERE {ends} < {now} - interval '{idle} microseconds'
    AND {key} IN (SELECT l.{key} FROM {table} l WHERE l.{ends} < {now} - interval '{idle} microseconds'
        LIMIT 500 FOR UPDATE SKIP LOCKED)
