//! The resource: one account in a SQLite table, written through rusqlite in four ways.
//! Not here: who may write. That is the lock's to say, and the table's to check.

use std::error::Error;
use std::path::Path;
use std::str::FromStr;

use rusqlite::{Connection, params};
use tenure::FencingToken;
use tenure::fenced::{self, Dialect, Fence};

/// The account that everybody writes.
const ACCOUNT: &str = "alice";

/// How the account is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Without any fence: what most programs do.
    Unfenced,
    /// With the condition that `tenure::fenced` gives.
    Fenced,
    /// Setting the fence, but without the condition; the table has a guard.
    Guarded,
    /// Without a word of the fence; the table has a guard.
    Forgetful,
}

impl Writer {
    /// All of them, in the order in which the story is told.
    pub const ALL: [Writer; 4] = [
        Writer::Unfenced,
        Writer::Fenced,
        Writer::Guarded,
        Writer::Forgetful,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Writer::Unfenced => "unfenced",
            Writer::Fenced => "fenced",
            Writer::Guarded => "guarded",
            Writer::Forgetful => "forgetful",
        }
    }
}

impl FromStr for Writer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Writer::ALL.into_iter().find(|writer| writer.name() == name);
        known.ok_or_else(|| format!("no writer is called {name:?}"))
    }
}

/// The table.
#[derive(Debug)]
pub struct Ledger {
    connection: Connection,
    fence: Fence,
}

impl Ledger {
    /// Makes the table, with one account, and the guard if that writer has one.
    pub fn create(path: &Path, writer: Writer) -> Result<Self, Box<dyn Error>> {
        let ledger = Ledger::open(path)?;
        ledger.connection.execute_batch(
            "CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
             INSERT INTO accounts VALUES ('alice', 0);",
        )?;
        ledger.connection.execute_batch(&ledger.fence.column_ddl())?;
        if matches!(writer, Writer::Guarded | Writer::Forgetful) {
            for statement in ledger.fence.guard().create()? {
                ledger.connection.execute_batch(&statement)?;
            }
        }
        Ok(ledger)
    }

    /// Opens the table that is there.
    pub fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Ledger {
            connection: Connection::open(path)?,
            fence: Fence::new(Dialect::Sqlite, "accounts", &["id"])?,
        })
    }

    /// Writes the balance. An error is a refusal, or the database's own.
    pub fn write(&self, writer: Writer, token: FencingToken, balance: i64) -> Result<(), Box<dyn Error>> {
        let (connection, fence) = (&self.connection, token.as_i64());
        let rows = match writer {
            Writer::Fenced => {
                let update = self.fence.update(&["balance"])?;
                connection.execute(update.sql(), params![balance, fence, ACCOUNT, fence])?
            }
            Writer::Guarded => connection.execute(
                "UPDATE accounts SET balance = ?, fence = ? WHERE id = ?",
                params![balance, fence, ACCOUNT],
            )?,
            Writer::Unfenced | Writer::Forgetful => connection.execute(
                "UPDATE accounts SET balance = ? WHERE id = ?",
                params![balance, ACCOUNT],
            )?,
        };
        Ok(fenced::applied(rows)?)
    }

    /// The balance as it stands.
    pub fn balance(&self) -> Result<i64, Box<dyn Error>> {
        let balance = "SELECT balance FROM accounts WHERE id = ?";
        Ok(self.connection.query_row(balance, [ACCOUNT], |row| row.get(0))?)
    }
}
