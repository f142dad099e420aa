//! The SQL statements: read the rows of a key, write its changes, delete old rows. All run within a transaction.

use std::num::NonZeroU32;
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row as SqlRow, Statement};
use tenure_backend::{ClaimId, ClientId, FencingToken, Instant, LockKey, Mode, TokenRange};

use super::ddl::COUNTERS;
use super::profile::SQLITE;
use crate::claims::{Change, Moment, Phase, Row, View};

/// The columns of `claim` except `key`, in the order in which [`read`] expects them.
macro_rules! columns {
    () => {
        "client, number, phase, mode, permits, semaphore_size, position, expires_at, reserved_until, first_token, tokens, \
         label, evictor, written_at"
    };
}

/// A statement that is prepared when it is first used: a program that takes a single lock uses half of the statements,
/// and to prepare the others would make a short `tenure run` noticeably slower. When dropped, the prepared
/// statement returns to the connection's cache.
pub(super) struct OnFirstUse<'c> {
    connection: &'c Connection,
    text: &'static str,
    prepared: Option<CachedStatement<'c>>,
}

impl<'c> OnFirstUse<'c> {
    pub(super) fn get(&mut self) -> rusqlite::Result<&mut CachedStatement<'c>> {
        match &mut self.prepared {
            Some(statement) => Ok(statement),
            unprepared => Ok(unprepared.insert(self.connection.prepare_cached(self.text)?)),
        }
    }

    /// Executes a statement that has no parameters and returns no rows.
    pub(super) fn run(&mut self) -> rusqlite::Result<()> {
        self.get()?.execute([]).map(drop)
    }
}

/// The statements of one connection. Keys and labels are parameters, never part of a statement's text.
pub(super) struct Tables<'c> {
    /// Begins a transaction and takes the write lock before the first read, so that no other process can change the
    /// rows between the read and the commit.
    pub(super) begin: OnFirstUse<'c>,
    begin_read: OnFirstUse<'c>,
    pub(super) commit: OnFirstUse<'c>,
    pub(super) rollback: OnFirstUse<'c>,
    counter: OnFirstUse<'c>,
    set_counter: OnFirstUse<'c>,
    live: OnFirstUse<'c>,
    ended: OnFirstUse<'c>,
    insert: OnFirstUse<'c>,
    update: OnFirstUse<'c>,
    delete: OnFirstUse<'c>,
    listed: OnFirstUse<'c>,
    swept: OnFirstUse<'c>,
    sweep_end: OnFirstUse<'c>,
    sweep: OnFirstUse<'c>,
    set_swept: OnFirstUse<'c>,
    version: OnFirstUse<'c>,
}

impl<'c> Tables<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let statement = |text| OnFirstUse {
            connection,
            text,
            prepared: None,
        };
        Tables {
            begin: statement("BEGIN IMMEDIATE"),
            begin_read: statement("BEGIN"),
            commit: statement("COMMIT"),
            rollback: statement("ROLLBACK"),
            counter: statement("SELECT last_token FROM token_counter WHERE number = ?1"),
            set_counter: statement("UPDATE token_counter SET last_token = ?2 WHERE number = ?1"),
            // ?1: key. Returns all rows of the key except those of ended claims, by one range scan of the primary key.
            live: statement(concat!(
                "SELECT ",
                columns!(),
                " FROM claim WHERE key = ?1 AND live = 1"
            )),
            // ?1: key, ?2: client, ?3: number. Returns the row of one ended claim. A busy key may have thousands of
            // them, so they are read one by one.
            ended: statement(concat!(
                "SELECT ",
                columns!(),
                " FROM claim WHERE key = ?1 AND live = 0 AND client = ?2 AND number = ?3"
            )),
            insert: statement(
                "INSERT INTO claim (key, client, number, live, phase, mode, permits, semaphore_size, position, expires_at, \
                 reserved_until, forget_at, first_token, tokens, label, evictor, written_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            ),
            // ?18: the old value of `live`, a part of the primary key: ending a claim changes `live` from 1 to 0.
            update: statement(
                "UPDATE claim SET live = ?4, phase = ?5, mode = ?6, permits = ?7, semaphore_size = ?8, position = ?9, \
                 expires_at = ?10, reserved_until = ?11, forget_at = ?12, first_token = ?13, tokens = ?14, label = ?15, \
                 evictor = ?16, written_at = ?17 \
                 WHERE key = ?1 AND live = ?18 AND client = ?2 AND number = ?3",
            ),
            delete: statement(
                "DELETE FROM claim WHERE key = ?1 AND live = ?2 AND client = ?3 AND number = ?4",
            ),
            // ?1: the first key, ?2: only keys after this one. Returns rows in the byte order of their keys.
            listed: statement(concat!(
                "SELECT ",
                columns!(),
                ", key FROM claim WHERE key >= ?1 AND key > ?2 AND live = 1 ORDER BY key"
            )),
            // Returns the primary key of the row at which the last sweep (deletion of old rows) by any process ended.
            swept: statement(
                "SELECT swept_key, swept_live, swept_client, swept_number FROM store WHERE id = 1",
            ),
            // ?1 to ?4: the primary key at which the last sweep ended, ?5: how many rows to skip. Returns the primary
            // key of the last row to sweep, or nothing if the table ends before.
            sweep_end: statement(
                "SELECT key, live, client, number FROM claim WHERE (key, live, client, number) > (?1, ?2, ?3, ?4) \
                 ORDER BY key, live, client, number LIMIT 1 OFFSET ?5",
            ),
            // ?1 to ?4: a primary key, ?5 to ?8: another, ?9: the current time. Of the rows after the first key, up to
            // the second, deletes those whose time `forget_at` has come and those of an earlier boot.
            sweep: statement(
                "DELETE FROM claim WHERE (key, live, client, number) > (?1, ?2, ?3, ?4) \
                 AND (key, live, client, number) <= (?5, ?6, ?7, ?8) \
                 AND (forget_at <= ?9 OR written_at > ?9)",
            ),
            set_swept: statement(
                "UPDATE store SET swept_key = ?1, swept_live = ?2, swept_client = ?3, swept_number = ?4 WHERE id = 1",
            ),
            version: statement("PRAGMA data_version"),
        }
    }

    /// Prepares statements that together name every column that this module uses, and that insert and update claims. This
    /// fails if a column is missing, or if a trigger for such a change names a table that is not there.
    pub(super) fn check(&mut self) -> rusqlite::Result<()> {
        for statement in [
            &mut self.live,
            &mut self.insert,
            &mut self.update,
            &mut self.set_counter,
            &mut self.swept,
        ] {
            statement.get()?;
        }
        Ok(())
    }

    /// Begins a read transaction, which shows one consistent state and blocks no writer.
    ///
    /// SQLite fixes that state at the first read, so this function reads. The caller then reads the clock: no row
    /// that it sees was written after that time.
    pub(super) fn begin_read(&mut self) -> rusqlite::Result<()> {
        self.begin_read.run()?;
        self.version().map(drop)
    }

    /// Reads the view of a key: all of its rows except those of ended claims.
    pub(super) fn read_view(&mut self, key: &LockKey, at: Moment) -> rusqlite::Result<View> {
        let mut view = View::new(key.clone(), at, &SQLITE);
        let mut rows = self.live.get()?.query([key.as_str()])?;
        while let Some(row) = rows.next()? {
            view.add(read(row)?, written_at(row)?);
        }
        Ok(view)
    }

    /// Adds to a view the key's token counter, and the rows of `ids` even if they have ended. The counter is read for
    /// each request, because a request for another key may have raised it: keys share counters.
    pub(super) fn read_claims(&mut self, view: &mut View, ids: &[ClaimId]) -> rusqlite::Result<()> {
        let counter: i64 = self
            .counter
            .get()?
            .query_row([counter_number(&view.key)], |row| row.get(0))?;
        view.set_counter_value(counter.cast_unsigned());
        for id in ids {
            if view.row(*id).is_none() {
                let client = id.client();
                let at = (view.key.as_str(), client.as_bytes(), id.number().cast_signed());
                let read = |row: &SqlRow<'_>| Ok((read(row)?, written_at(row)?));
                if let Some((row, written_at)) = self.ended.get()?.query_row(at, read).optional()? {
                    view.add(row, written_at);
                }
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, view: &mut View) -> rusqlite::Result<Written> {
        let mut written = Written::default();
        for change in view.changes() {
            written.any = true;
            match change {
                Change::Counter(last) => {
                    self.set_counter
                        .get()?
                        .execute((counter_number(&view.key), last.cast_signed()))?;
                }
                Change::Insert(row) => {
                    let insert = self.insert.get()?;
                    bind(insert, view, row)?;
                    insert.raw_execute()?;
                    written.rows += 1;
                }
                Change::Update(row, stored) => {
                    let update = self.update.get()?;
                    bind(update, view, row)?;
                    update.raw_bind_parameter(18, live(stored))?;
                    update.raw_execute()?;
                }
                Change::Delete(row, stored) => {
                    let client = row.id.client();
                    let number = row.id.number().cast_signed();
                    self.delete.get()?.execute((
                        view.key.as_str(),
                        live(stored),
                        client.as_bytes(),
                        number,
                    ))?;
                }
            }
        }
        view.mark_written();
        Ok(written)
    }

    /// Calls `show` with the view of each key >= `from` and > `after`, in order, until it returns `false`.
    pub(super) fn list(
        &mut self,
        from: &str,
        after: &str,
        at: Moment,
        mut show: impl FnMut(&View) -> bool,
    ) -> rusqlite::Result<()> {
        let mut rows = self.listed.get()?.query((from, after))?;
        let mut current: Option<View> = None;
        while let Some(row) = rows.next()? {
            let name = row.get_ref(14)?.as_str()?;
            if current.as_ref().is_none_or(|view| view.key.as_str() != name) {
                let key = LockKey::new(name).map_err(|_| damaged(14, "a key"))?;
                if current
                    .replace(View::new(key, at, &SQLITE))
                    .is_some_and(|done| !show(&done))
                {
                    return Ok(());
                }
            }
            if let Some(view) = &mut current {
                view.add(read(row)?, written_at(row)?);
            }
        }
        if let Some(last) = current {
            show(&last);
        }
        Ok(())
    }

    /// Sweeps up to `count` rows: deletes those whose time `forget_at` has come and those of an earlier boot. Starts
    /// after the row at which the last sweep by any process ended. Stops at the end of the table; the next sweep then
    /// starts at the first row. Returns the number of deleted rows.
    pub(super) fn sweep(&mut self, count: u32, now: Instant) -> rusqlite::Result<usize> {
        type PrimaryKey = (String, i64, Vec<u8>, i64);
        let primary_key = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        let from: PrimaryKey = self.swept.get()?.query_row([], primary_key)?;
        let (key, live, client, number) = &from;
        let end: Option<PrimaryKey> = self
            .sweep_end
            .get()?
            .query_row((key, live, client, number, count.saturating_sub(1)), primary_key)
            .optional()?;
        // Sorts after every key, because no key has 60 of the greatest character.
        let last = || ("\u{10FFFF}".repeat(60), 2, Vec::new(), 0);
        let to = end.clone().unwrap_or_else(last);
        let next = end.unwrap_or_default();
        let (to_key, to_live, to_client, to_number) = &to;
        let deleted = self.sweep.get()?.execute((
            key,
            live,
            client,
            number,
            to_key,
            to_live,
            to_client,
            to_number,
            nanos(now),
        ))?;
        if next != from {
            self.set_swept
                .get()?
                .execute((&next.0, next.1, &next.2, next.3))?;
        }
        Ok(deleted)
    }

    /// `PRAGMA data_version`, which differs between two transactions if another connection has committed.
    pub(super) fn version(&mut self) -> rusqlite::Result<i64> {
        self.version.get()?.query_row([], |row| row.get(0))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    /// True if the transaction has changes to commit.
    pub(super) any: bool,
    /// Number of inserted rows.
    pub(super) rows: u32,
}

impl Written {
    pub(super) fn add(&mut self, more: Self) {
        self.any |= more.any;
        self.rows = self.rows.saturating_add(more.rows);
    }
}

/// Number of a key's token counter: the FNV-1a hash of the key, modulo 64. The same in every process and version.
fn counter_number(key: &LockKey) -> i64 {
    let hash = key.as_str().bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (hash % COUNTERS).cast_signed()
}

/// The column `live`: 0 for rows of ended claims, which affect no other claim; 1 for other rows.
fn live(phase: Phase) -> i64 {
    i64::from(phase != Phase::Ended)
}

fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

/// Binds the parameters ?1 to ?17 of the statements `insert` and `update`.
fn bind(statement: &mut Statement<'_>, view: &View, row: &Row) -> rusqlite::Result<()> {
    let (mode, permits, size) = match row.mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Read => (1, 0, 0),
        Mode::Write => (2, 0, 0),
        Mode::Permits { take, of } => (3, i64::from(take.get()), i64::from(of.get())),
    };
    let (first_token, tokens) = row
        .tokens
        .map_or((0, 0), |run| (run.first().as_i64(), i64::from(run.count().get())));
    statement.raw_bind_parameter(1, view.key.as_str())?;
    statement.raw_bind_parameter(2, row.id.client().as_bytes())?;
    statement.raw_bind_parameter(3, row.id.number().cast_signed())?;
    statement.raw_bind_parameter(4, live(row.phase))?;
    statement.raw_bind_parameter(5, row.phase as i64)?;
    let numbers = [
        mode,
        permits,
        size,
        row.position,
        nanos(row.expires_at),
        nanos(row.reserved_until),
        nanos(row.forget_at()),
        first_token,
        tokens,
    ];
    for (at, number) in numbers.into_iter().enumerate() {
        statement.raw_bind_parameter(6 + at, number)?;
    }
    statement.raw_bind_parameter(15, &*row.label)?;
    statement.raw_bind_parameter(16, row.evictor.as_deref())?;
    statement.raw_bind_parameter(17, nanos(view.now()))
}

/// Reads the column `written_at` from a row in the order of `columns!`.
fn written_at(row: &SqlRow<'_>) -> rusqlite::Result<Instant> {
    let nanos: i64 = row.get(13)?;
    Ok(Instant::from_nanos(nanos.max(0).cast_unsigned()))
}

/// Reads the columns except `written_at` from a row in the order of `columns!`.
fn read(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    let number = |at| row.get::<_, i64>(at);
    let instant = |at| Ok::<_, rusqlite::Error>(Instant::from_nanos(number(at)?.max(0).cast_unsigned()));
    let permits = |at| -> rusqlite::Result<NonZeroU32> {
        let count = u32::try_from(number(at)?).ok().and_then(NonZeroU32::new);
        count.ok_or_else(|| damaged(at, "a number of permits"))
    };
    let mode = match number(3)? {
        0 => Mode::Exclusive,
        1 => Mode::Read,
        2 => Mode::Write,
        3 => Mode::Permits {
            take: permits(4)?,
            of: permits(5)?,
        },
        _ => return Err(damaged(3, "a mode")),
    };
    let count = u32::try_from(number(10)?).ok().and_then(NonZeroU32::new);
    let first = FencingToken::new(number(9)?.cast_unsigned());
    Ok(Row {
        id: ClaimId::new(ClientId::from_bytes(row.get(0)?), number(1)?.cast_unsigned()),
        phase: Phase::from_number(number(2)?).ok_or_else(|| damaged(2, "a phase"))?,
        mode,
        position: number(6)?,
        expires_at: instant(7)?,
        reserved_until: instant(8)?,
        tokens: first
            .zip(count)
            .and_then(|(first, count)| TokenRange::new(first, count)),
        label: Arc::from(row.get_ref(11)?.as_str()?),
        evictor: row.get_ref(12)?.as_str_or_null()?.map(Arc::from),
    })
}

/// Error for a row with values that no build of Tenure writes, in a file that SQLite finds intact.
fn damaged(column: usize, what: &str) -> rusqlite::Error {
    let cause = format!("a row of the table `claim` has no {what} where one belongs");
    rusqlite::Error::FromSqlConversionFailure(column, Type::Null, cause.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::config::Config;
    use crate::sqlite::file::Contents;
    use crate::sqlite::origin::Origin;
    use crate::sqlite::tests::create_file;
    use crate::sqlite::validate;

    /// A row written after the clock was read would look like one of an earlier boot.
    #[test]
    fn a_read_transaction_sees_no_later_row() {
        let here = Origin::here().expect("/proc can be read");
        let (_dir, path, reading) = create_file(&here);
        let writing = validate::open(&path, Contents::NonEmpty, &Config::default(), &here);
        let writing = writing.expect("the file opens");
        let mut tables = Tables::new(&reading);
        tables.begin_read().expect("it can be read");
        let insert =
            "INSERT INTO claim VALUES ('k', 1, zeroblob(16), 1, 4, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, '', NULL)";
        writing.execute(insert, []).expect("it can be written");
        let at = Moment {
            now: Instant::ORIGIN,
            wall_micros: 1,
        };
        let key = LockKey::new("k").expect("a good key");
        let rows = |tables: &mut Tables<'_>| tables.read_view(&key, at).expect("it can be read").rows();
        assert_eq!(rows(&mut tables), 0);
        tables.rollback.run().expect("the transaction ends");
        assert_eq!(rows(&mut tables), 1);
    }

    /// A later version may use the file, and must find the same counter for a key.
    #[test]
    fn a_key_always_has_the_same_counter() {
        let of = |name: &str| counter_number(&LockKey::new(name).expect("the names are valid"));
        assert_eq!([of("k"), of("order:42"), of("ä"), of("K")], [10, 49, 2, 42]);
        let all: std::collections::BTreeSet<i64> = (0..1000).map(|n| of(&format!("key {n}"))).collect();
        assert_eq!(all, (0..64).collect());
    }
}
