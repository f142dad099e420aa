-- Format 1, since 0.1. One claim that ended, one that was evicted, and a mutex, a semaphore, a read-write lock and a
-- mutex with a watcher, each held and waited for.
PRAGMA application_id = 0x54454E55;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,
    machine TEXT NOT NULL,
    clock_offset INTEGER NOT NULL, -- added to CLOCK_BOOTTIME by the time namespace, ns
    swept_key TEXT NOT NULL DEFAULT '', -- swept_*: the claim at which the last deletion of old rows ended
    swept_live INTEGER NOT NULL DEFAULT 0,
    swept_client BLOB NOT NULL DEFAULT x'',
    swept_number INTEGER NOT NULL DEFAULT 0
);
INSERT INTO store VALUES(1,1,'the machine of the sample',0,'',0,X'',0);
CREATE TABLE token_counter (
    number INTEGER PRIMARY KEY, -- a hash of the key
    last_token INTEGER NOT NULL
);
INSERT INTO token_counter VALUES(0,0);
INSERT INTO token_counter VALUES(1,0);
INSERT INTO token_counter VALUES(2,0);
INSERT INTO token_counter VALUES(3,0);
INSERT INTO token_counter VALUES(4,0);
INSERT INTO token_counter VALUES(5,0);
INSERT INTO token_counter VALUES(6,0);
INSERT INTO token_counter VALUES(7,0);
INSERT INTO token_counter VALUES(8,0);
INSERT INTO token_counter VALUES(9,1795727272391488);
INSERT INTO token_counter VALUES(10,0);
INSERT INTO token_counter VALUES(11,0);
INSERT INTO token_counter VALUES(12,0);
INSERT INTO token_counter VALUES(13,0);
INSERT INTO token_counter VALUES(14,0);
INSERT INTO token_counter VALUES(15,0);
INSERT INTO token_counter VALUES(16,0);
INSERT INTO token_counter VALUES(17,0);
INSERT INTO token_counter VALUES(18,0);
INSERT INTO token_counter VALUES(19,0);
INSERT INTO token_counter VALUES(20,0);
INSERT INTO token_counter VALUES(21,0);
INSERT INTO token_counter VALUES(22,0);
INSERT INTO token_counter VALUES(23,0);
INSERT INTO token_counter VALUES(24,0);
INSERT INTO token_counter VALUES(25,0);
INSERT INTO token_counter VALUES(26,0);
INSERT INTO token_counter VALUES(27,1795727272392115);
INSERT INTO token_counter VALUES(28,0);
INSERT INTO token_counter VALUES(29,0);
INSERT INTO token_counter VALUES(30,0);
INSERT INTO token_counter VALUES(31,0);
INSERT INTO token_counter VALUES(32,0);
INSERT INTO token_counter VALUES(33,1795727272387456);
INSERT INTO token_counter VALUES(34,0);
INSERT INTO token_counter VALUES(35,0);
INSERT INTO token_counter VALUES(36,4102444800000000);
INSERT INTO token_counter VALUES(37,0);
INSERT INTO token_counter VALUES(38,0);
INSERT INTO token_counter VALUES(39,1795727272348410);
INSERT INTO token_counter VALUES(40,0);
INSERT INTO token_counter VALUES(41,0);
INSERT INTO token_counter VALUES(42,0);
INSERT INTO token_counter VALUES(43,0);
INSERT INTO token_counter VALUES(44,0);
INSERT INTO token_counter VALUES(45,0);
INSERT INTO token_counter VALUES(46,0);
INSERT INTO token_counter VALUES(47,0);
INSERT INTO token_counter VALUES(48,0);
INSERT INTO token_counter VALUES(49,0);
INSERT INTO token_counter VALUES(50,0);
INSERT INTO token_counter VALUES(51,0);
INSERT INTO token_counter VALUES(52,0);
INSERT INTO token_counter VALUES(53,0);
INSERT INTO token_counter VALUES(54,0);
INSERT INTO token_counter VALUES(55,0);
INSERT INTO token_counter VALUES(56,0);
INSERT INTO token_counter VALUES(57,0);
INSERT INTO token_counter VALUES(58,0);
INSERT INTO token_counter VALUES(59,0);
INSERT INTO token_counter VALUES(60,0);
INSERT INTO token_counter VALUES(61,0);
INSERT INTO token_counter VALUES(62,0);
INSERT INTO token_counter VALUES(63,1795727272379449);
CREATE TABLE claim ( -- all times: CLOCK_BOOTTIME, ns
    key TEXT NOT NULL,
    live INTEGER NOT NULL, -- 0 in phase 0, otherwise 1
    client BLOB NOT NULL,
    number INTEGER NOT NULL,
    phase INTEGER NOT NULL, -- 0 ended, 1 evicted, 2 not queued but wants wake-ups, 3 queued, 4 granted
    mode INTEGER NOT NULL, -- 0 mutex, 1 reader, 2 writer, 3 permits of a semaphore
    permits INTEGER NOT NULL,
    semaphore_size INTEGER NOT NULL,
    position INTEGER NOT NULL, -- in the queue; phase 2: the time of the registration
    written_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    reserved_until INTEGER NOT NULL, -- phase 1: the end of the cooldown; phase 2: of the reservation, or 0
    forget_at INTEGER NOT NULL, -- the row may be deleted from then on
    first_token INTEGER NOT NULL,
    tokens INTEGER NOT NULL, -- how many, from first_token on
    label TEXT NOT NULL,
    evictor TEXT,
    PRIMARY KEY (key, live, client, number)
) WITHOUT ROWID;
INSERT INTO claim VALUES('ended',0,X'e3e3e3e3e3e343e3a3e3e3e3e3e3e3e3',2,0,0,0,0,0,1000001000000000,1000011000000000,1000001000000000,1000011000000000,1795727272392115,1,'eve@two:33',NULL);
INSERT INTO claim VALUES('evicted',1,X'a1a1a1a1a1a141a1a1a1a1a1a1a1a1a1',4,1,0,0,0,0,1000001000000000,1000060000000000,1000001010000000,1000060000000000,1795727272348410,1,'ann@one:11','operator');
INSERT INTO claim VALUES('mutex',1,X'a1a1a1a1a1a141a1a1a1a1a1a1a1a1a1',1,4,0,0,0,0,1000000000000000,1000060000000000,0,1000070000000000,4102444799999999,2,'ann@one:11',NULL);
INSERT INTO claim VALUES('mutex',1,X'b2b2b2b2b2b242b2b2b2b2b2b2b2b2b2',1,3,0,0,0,1,1000000000000000,1000060000000000,0,1000070000000000,0,0,'bob@two:22',NULL);
INSERT INTO claim VALUES('seats',1,X'a1a1a1a1a1a141a1a1a1a1a1a1a1a1a1',3,4,3,2,3,0,1000000000000000,1000060000000000,0,1000070000000000,1795727272387456,1,'ann@one:11',NULL);
INSERT INTO claim VALUES('seats',1,X'b2b2b2b2b2b242b2b2b2b2b2b2b2b2b2',3,3,3,2,3,1,1000000000000000,1000060000000000,0,1000070000000000,0,0,'bob@two:22',NULL);
INSERT INTO claim VALUES('table',1,X'a1a1a1a1a1a141a1a1a1a1a1a1a1a1a1',2,4,1,0,0,0,1000000000000000,1000060000000000,0,1000070000000000,1795727272375453,1,'ann@one:11',NULL);
INSERT INTO claim VALUES('table',1,X'b2b2b2b2b2b242b2b2b2b2b2b2b2b2b2',2,3,2,0,0,1,1000000000000000,1000060000000000,0,1000070000000000,0,0,'bob@two:22',NULL);
INSERT INTO claim VALUES('table',1,X'e3e3e3e3e3e343e3a3e3e3e3e3e3e3e3',1,4,1,0,0,0,1000000000000000,1000060000000000,0,1000070000000000,1795727272379449,1,'eve@two:33',NULL);
INSERT INTO claim VALUES('watched',1,X'a1a1a1a1a1a141a1a1a1a1a1a1a1a1a1',5,4,0,0,0,0,1000000000000000,1000060000000000,0,1000070000000000,1795727272391488,1,'ann@one:11',NULL);
INSERT INTO claim VALUES('watched',1,X'e3e3e3e3e3e343e3a3e3e3e3e3e3e3e3',3,2,0,0,0,1000001000000000,1000001000000000,1000011000000000,0,1000011000000000,0,0,'eve@two:33',NULL);
COMMIT;
