-- The statements of `shedlock` that differ from those of `unique`. Its times have no zone.

-- name: release
-- Whole milliseconds, because ShedLock without `usingDbTime` compares with those of its own clock: to it, the key would stay
-- held until the next one.
UPDATE {table} l SET {ends} = least(l.{ends}, date_trunc('milliseconds', {now}))
    WHERE l.{key} = {:key} AND {mine} AND {held}

-- name: now
timezone({zone}, {clock})

-- name: time
timestamp

-- name: now_by_default
