-- The statements of the layout `unique` for MySQL and MariaDB, and what the other layouts share with them.
--
-- Each statement that takes or prolongs reads the clock after it has locked the row. A session never waits for a row: the
-- lock wait of its connection is 0 s on MariaDB and 1 s, the least, on MySQL. Assignments take place from left to right, so a
-- condition is computed once, in the first one.

-- name: take
-- Inserts the row, or takes over one that has expired. It is sent only if the row looked free, because a refused INSERT, too,
-- uses up an automatic number.
--
-- The key of a request that comes too late is NULL, which the column refuses. `INSERT … SELECT … WHERE` would say so in a
-- better way, but it locks the table's automatic numbers until it is committed, so that no two keys could be taken at a time.
--
-- The times of a new row are computed before the statement waits for another session that inserts the same key. On MariaDB
-- it does not wait. On MySQL it waits for at most 1 s, and may be placed so much later if the other session gives up.
INSERT INTO {table} ({key}, {holder}, {ends}, {changed})
    VALUES ({key_in_time}, {:holder}, {later}, {now})
    ON DUPLICATE KEY UPDATE
        {changed} = IF(@free := (NOT {held} AND NOT {mine} AND {now_us} < {:until}), {now}, {changed}),
        {holder} = IF(@free, VALUES({holder}), {holder}),
        {ends} = IF(@free, {later}, {ends}) {returning}

-- name: look
-- Returns the server's time even if there is no row.
SELECT {row} FROM (SELECT 1) here LEFT JOIN {table} ON {key} = {:key}

-- name: list
SELECT {row} FROM {table}
    WHERE {held} AND SUBSTRING_INDEX({holder}, ' ', 1) <> 'evicted'
        AND {key} >= {:prefix} AND LOCATE({:prefix}, {key}) = 1 AND {key} > {:after}
    ORDER BY {key} LIMIT {:limit}

-- name: renew
UPDATE {table} SET {ends} = IF({:shorten} = 1, LEAST({ends}, {later}), {later}){raise}
    WHERE {key} = {:key} AND {mine} AND {held}

-- name: evict
UPDATE {table} SET {holder} = {:holder}, {changed} = {now}, {ends} = {later}
    WHERE {key} = {:key} AND {holder} = {:target} AND {held}

-- name: returning
-- MariaDB reads the comment, and MySQL knows no such clause.
/*M!100500 RETURNING {row} */

-- name: key_in_time
IF({now_us} < {:until}, {:key}, NULL)

-- name: now
-- NOW() would be the time at which the statement began.
{clock}

-- name: now_us
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now})

-- name: later
({now} + INTERVAL {:lease} MICROSECOND)

-- name: mine
COALESCE(SUBSTRING_INDEX({holder}, ' ', 1) = {:id}, FALSE)

-- name: held
({ends} > {now})

-- name: token
NULL

-- name: left
{until_end}

-- name: until_end
TIMESTAMPDIFF(MICROSECOND, {now}, {ends})

-- name: row
{key}, {holder}, {token}, {held}, {left}, {now_us}

-- name: raise

-- name: user
user

-- name: numbered
NOT NULL AUTO_INCREMENT

-- name: exact
{text}

-- name: text
-- MariaDB reads the comment that begins with `/*M!`, MySQL that with its version.
CHARACTER SET utf8mb4 COLLATE /*M! {exact_on_mariadb} */ /*!80017 {exact_on_mysql} */

-- name: time
DATETIME({decimals})

-- name: decimals
6

-- name: now_by_default
DEFAULT CURRENT_TIMESTAMP({decimals})

-- name: with
ENGINE = InnoDB COMMENT =

-- name: one_at_a_time
