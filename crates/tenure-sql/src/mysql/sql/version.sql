-- The statements of `version` that differ from those of `unique`.

-- name: take
UPDATE {table} SET version = LAST_INSERT_ID(version + {:tokens}), {holder} = {:holder}, locked = 1,
        {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND NOT {held} AND NOT {mine} AND {now_us} < {:until}

-- name: insert
-- A new row's version begins at the time in microseconds, so that tokens rise even after the row was deleted.
INSERT INTO {table} ({key}, version, locked, {holder}, {changed}, {ends})
    VALUES ({key_in_time}, GREATEST({:tokens}, {now_us}), 1, {:holder}, {now}, {later})
    ON DUPLICATE KEY UPDATE {key} = VALUES({key}) {returning}

-- name: release
{clear} AND {held}

-- name: clear
-- The release after the lease's end: a textbook client does not take a row whose lease has ended.
UPDATE {table} SET locked = 0, {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = NULL
    WHERE {key} = {:key} AND locked AND {mine}

-- name: evict
UPDATE {table} SET {holder} = NULL, version = version + 1, {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND {holder} = {:target} AND version = {:seen} AND {held}

-- name: settle
-- A textbook client does not know the end of a lease. So the row is freed after the cooldown.
UPDATE {table} SET locked = 0, version = version + 1, {ends} = NULL
    WHERE {key} = {:key} AND version = {:seen} AND locked AND {holder} IS NULL

-- name: raise
-- If the server's clock has gone back, the lease ends before the time of the take, and must not look like one that never ends.
, version = GREATEST(version, {:raise}), {changed} = LEAST({changed}, {now})

-- name: held
-- A lease that had ended when the row was taken is that of an earlier holder: this one never ends.
(locked AND NOT COALESCE({ends} > {changed} AND {ends} <= {now}, FALSE))

-- name: token
version

-- name: left
IF({ends} > {changed}, {until_end}, NULL)
