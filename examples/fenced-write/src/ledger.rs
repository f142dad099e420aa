//! The protected resource: one account in a SQLite table, which can be written in four ways.

use std::error::Error;
use std::path::Path;
use std::str::FromStr;

use tenure::FencingToken;
use tenure::fenced::{self, Dialect, Fence};

use crate::client::Database;
use crate::value::Value;

/// The account that all holders write.
const ACCOUNT: &str = "alice";

/// A way to write the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Writes without a fence, like most programs.
    Unfenced,
    /// With the condition of `tenure::fenced`: the stored token is not greater.
    Fenced,
    /// Writes the token unconditionally. The table's guard, a trigger, refuses older ones.
    Guarded,
    /// Writes without a token, which the table's guard refuses.
    Forgetful,
}

impl Writer {
    /// All ways to write, in the order of the demonstration.
    pub const ALL: [Writer; 4] = [
        Writer::Unfenced,
        Writer::Fenced,
        Writer::Guarded,
        Writer::Forgetful,
    ];

    /// Name of this way to write on the command line.
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

/// The table `accounts`, with a column for the fencing token.
#[derive(Debug)]
pub struct Ledger {
    database: Database,
    fence: Fence,
}

impl Ledger {
    /// Creates the table with one account, and with the guard if this writer needs it.
    pub fn create(path: &Path, writer: Writer) -> Result<Self, Box<dyn Error>> {
        let ledger = Ledger::open(path)?;
        let mut statements = vec![
            "CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL)".to_owned(),
            "INSERT INTO accounts VALUES ('alice', 0)".to_owned(),
            ledger.fence.column_ddl(),
        ];
        if matches!(writer, Writer::Guarded | Writer::Forgetful) {
            statements.extend(ledger.fence.guard().create()?);
        }
        for statement in statements {
            ledger.database.execute(&statement, &[])?;
        }
        Ok(ledger)
    }

    /// Opens the database file. Does not check that the table exists.
    pub fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Ledger {
            database: Database::open(path)?,
            fence: Fence::new(Dialect::Sqlite, "accounts", &["id"])?,
        })
    }

    /// Writes the balance in the way that `writer` names. Fails if the write is refused, or the database fails.
    pub fn write(&self, writer: Writer, token: FencingToken, balance: i64) -> Result<(), Box<dyn Error>> {
        let (balance, fence, account) = (balance.into(), token.as_i64().into(), Value::Text(ACCOUNT));
        let rows = match writer {
            Writer::Fenced => {
                let update = self.fence.update(&["balance"])?;
                let values = update.params([balance], token, [account]);
                self.database.execute(update.sql(), &values)?
            }
            Writer::Guarded => {
                let update = "UPDATE accounts SET balance = ?, fence = ? WHERE id = ?";
                self.database.execute(update, &[balance, fence, account])?
            }
            Writer::Unfenced | Writer::Forgetful => {
                let update = "UPDATE accounts SET balance = ? WHERE id = ?";
                self.database.execute(update, &[balance, account])?
            }
        };
        Ok(fenced::applied(rows)?)
    }

    /// The current balance.
    pub fn balance(&self) -> Result<i64, Box<dyn Error>> {
        self.database
            .number("SELECT balance FROM accounts WHERE id = 'alice'")
    }
}
