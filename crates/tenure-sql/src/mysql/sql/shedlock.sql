-- The statements of `shedlock` that differ from those of `unique`. Its times have milliseconds, and MariaDB cuts off what is between two: the end is rounded up.

-- name: release
-- Half a millisecond, because MySQL rounds to the next one, and the key would stay held until then.
UPDATE {table} SET {ends} = LEAST({ends}, {now} - INTERVAL 500 MICROSECOND)
    WHERE {key} = {:key} AND {mine} AND {held}

-- name: later
({now} + INTERVAL {:lease} + 999 MICROSECOND)

-- name: decimals
3
