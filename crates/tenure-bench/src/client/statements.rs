//! Beside SQLite: its statements alone, with the journal and sync settings of Tenure's store, as a careful person
//! would write a lock with them.
//!
//! Statements run on the caller's own thread, one transaction for each lock and one for each unlock. It promises less: no
//! renewal and no expiry (a dead holder keeps its key), no wake-up between processes, no order between them, nothing to
//! see or to evict, and a slow disk blocks a thread of the runtime. How it waits is in `waiting`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Mutex;

use super::tokio_mutex::TokioMutexes;
use super::waiting::{Held, random, wait};
use super::{Lock, Locker};
use crate::Fallible;

/// How often a process looks whether another has left the file, and when it gives up: as the store does.
const LOOK_EVERY: Duration = Duration::from_micros(100);
const LOOKS: i32 = 50_000;

/// The store's token counters, and how many tokens a grant reserves there.
const BUCKETS: u64 = 64;
const GRANTS: i64 = 64;

const BEGIN: &str = "BEGIN IMMEDIATE";
const COUNTER: &str = "SELECT last FROM bucket WHERE number = ?1";
const LIVE: &str = "SELECT client, number, phase, kind, take, size, place, until, reserved, token, run, label, evictor \
     FROM claim WHERE key = ?1 AND live = 1";
const ENDED: &str = "SELECT client, number, phase, kind, take, size, place, until, reserved, token, run, label, evictor \
     FROM claim WHERE key = ?1 AND live = 0 AND client = ?2 AND number = ?3";
const INSERT: &str = "INSERT INTO claim (key, live, client, number, phase, kind, take, size, place, until, reserved, \
     forget, token, run, label) VALUES (?1, 1, ?2, ?3, 4, 0, 0, 0, 0, 9, 0, 0, ?4, 64, 'bench@host:1')";
const SET_COUNTER: &str = "UPDATE bucket SET last = ?2 WHERE number = ?1";
const END: &str = "UPDATE claim SET live = 0, phase = 0, kind = 0, take = 0, size = 0, place = 0, until = 9, \
     reserved = 0, forget = 0, token = 1, run = 64, label = 'bench@host:1', evictor = NULL \
     WHERE key = ?1 AND live = 1 AND client = ?2 AND number = ?3";

/// One connection, as a process has one in Tenure's store too; transactions take it in turns.
pub(crate) struct Statements {
    file: Arc<Mutex<LockFile>>,
    lines: TokioMutexes,
}

struct LockFile {
    connection: Connection,
    client: [u8; 16],
    claims: i64,
    /// Whether a commit waits for the disk at this moment.
    durable: bool,
}

pub(crate) struct Key {
    name: String,
    bucket: i64,
    file: Arc<Mutex<LockFile>>,
    line: Arc<Mutex<()>>,
}

impl Statements {
    /// Opens a file that already has the store's tables.
    pub(crate) fn open(path: &Path) -> Fallible<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_handler(Some(look_again as fn(i32) -> bool))?;
        connection.set_prepared_statement_cache_capacity(32);
        let journal: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if journal != "wal" {
            return Err(format!("SQLite keeps no write-ahead log at {}", path.display()).into());
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        let mut client = [0; 16];
        client[..8].copy_from_slice(&random().to_le_bytes());
        Ok(Statements {
            file: Arc::new(Mutex::new(LockFile {
                connection,
                client,
                claims: 0,
                durable: true,
            })),
            lines: TokioMutexes::default(),
        })
    }
}

fn look_again(looks: i32) -> bool {
    std::thread::sleep(LOOK_EVERY);
    looks < LOOKS
}

impl LockFile {
    /// Takes the key if nobody has it; the number of the claim.
    fn acquire(&mut self, key: &Key) -> rusqlite::Result<Option<i64>> {
        self.begin(true)?;
        let last = self.counter(key)?;
        if self.is_held(key)? {
            self.run("ROLLBACK")?;
            return Ok(None);
        }
        self.claims += 1;
        let (number, client) = (self.claims, self.client);
        let claim = (&key.name, client, number);
        let mut ended = self.connection.prepare_cached(ENDED)?;
        let known = ended.exists(claim)?;
        debug_assert!(!known, "a claim's number is used once");
        self.connection
            .prepare_cached(INSERT)?
            .execute((&key.name, client, number, last + 1))?;
        self.connection
            .prepare_cached(SET_COUNTER)?
            .execute((key.bucket, last + GRANTS))?;
        self.run("COMMIT")?;
        Ok(Some(number))
    }

    fn release(&mut self, key: &Key, number: i64) -> rusqlite::Result<()> {
        self.begin(false)?;
        self.counter(key)?;
        self.is_held(key)?;
        self.connection
            .prepare_cached(END)?
            .execute((&key.name, self.client, number))?;
        self.run("COMMIT")
    }

    /// A grant's commit waits for the disk, a release's does not: as the store has it.
    fn begin(&mut self, durable: bool) -> rusqlite::Result<()> {
        if self.durable != durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durable = durable;
        }
        self.run(BEGIN)
    }

    fn run(&self, text: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(text)?.execute([]).map(drop)
    }

    fn counter(&self, key: &Key) -> rusqlite::Result<i64> {
        self.connection
            .prepare_cached(COUNTER)?
            .query_row([key.bucket], |row| row.get(0))
    }

    fn is_held(&self, key: &Key) -> rusqlite::Result<bool> {
        self.connection.prepare_cached(LIVE)?.exists([&key.name])
    }
}

impl Locker for Statements {
    type Lock = Key;

    fn lock_of(&self, key: &str) -> Key {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Key {
            name: key.to_owned(),
            bucket: (hasher.finish() % BUCKETS).cast_signed(),
            file: self.file.clone(),
            line: self.lines.lock_of(key),
        }
    }

    async fn close(self) -> Fallible<()> {
        Ok(())
    }
}

impl Lock for Key {
    /// Whose number is the claim's.
    type Guard = Held<i64>;

    async fn lock(&self) -> Fallible<Held<i64>> {
        wait(&self.line, || async { Ok(self.file.lock().await.acquire(self)?) }).await
    }

    async fn unlock(&self, held: Held<i64>) -> Fallible<()> {
        Ok(self.file.lock().await.release(self, held.granted)?)
    }
}
