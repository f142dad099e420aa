-- The statements that `unique` alone has.

-- name: release
{clear} AND {held}

-- name: clear
DELETE FROM {table} WHERE {key} = {:key} AND {mine}

-- name: sweep
DELETE FROM {table} WHERE {ends} < {now} - INTERVAL {idle} MICROSECOND LIMIT 500
