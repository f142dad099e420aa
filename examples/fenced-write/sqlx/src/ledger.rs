//! The resource: one account in a SQLite table, written through sqlx.
//! Not here: who may write. That is the lock's to say, and the table's to check.

use std::error::Error;
use std::path::Path;
use std::str::FromStr;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tenure::FencingToken;
use tenure::fenced::{self, Dialect, Fence};

/// The account that everybody writes.
const ACCOUNT: &str = "alice";

/// How the account is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// With the condition that `tenure::fenced` gives.
    Fenced,
    /// Setting the fence, but without the condition; the table has a guard.
    Guarded,
}

impl Writer {
    /// Both, in the order in which the story is told.
    pub const ALL: [Writer; 2] = [Writer::Fenced, Writer::Guarded];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Writer::Fenced => "fenced",
            Writer::Guarded => "guarded",
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
    pool: SqlitePool,
    fence: Fence,
}

impl Ledger {
    /// Makes the table, with one account, and the guard if that writer has one.
    pub async fn create(path: &Path, writer: Writer) -> Result<Self, Box<dyn Error>> {
        let ledger = Ledger::open(path).await?;
        let mut statements = vec![
            "CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL)".to_owned(),
            "INSERT INTO accounts VALUES ('alice', 0)".to_owned(),
            ledger.fence.column_ddl(),
        ];
        if writer == Writer::Guarded {
            statements.extend(ledger.fence.guard().create()?);
        }
        for statement in statements {
            // sqlx asks for a word where text was made at run time: no value is in this one, and its names are checked.
            sqlx::raw_sql(AssertSqlSafe(statement))
                .execute(&ledger.pool)
                .await?;
        }
        Ok(ledger)
    }

    /// Opens the table.
    pub async fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        Ok(Ledger {
            pool: SqlitePool::connect_with(options).await?,
            fence: Fence::new(Dialect::Sqlite, "accounts", &["id"])?,
        })
    }

    /// Writes the balance. An error is a refusal, or the database's own.
    pub async fn write(
        &self,
        writer: Writer,
        token: FencingToken,
        balance: i64,
    ) -> Result<(), Box<dyn Error>> {
        let token = token.as_i64();
        let rows = match writer {
            Writer::Fenced => {
                let update = self.fence.update(&["balance"])?;
                let query = sqlx::query(AssertSqlSafe(update.sql()));
                query
                    .bind(balance)
                    .bind(token)
                    .bind(ACCOUNT)
                    .bind(token)
                    .execute(&self.pool)
                    .await?
            }
            Writer::Guarded => {
                let query = sqlx::query("UPDATE accounts SET balance = ?, fence = ? WHERE id = ?");
                query
                    .bind(balance)
                    .bind(token)
                    .bind(ACCOUNT)
                    .execute(&self.pool)
                    .await?
            }
        };
        Ok(fenced::applied(rows.rows_affected())?)
    }

    /// The balance as it stands.
    pub async fn balance(&self) -> Result<i64, Box<dyn Error>> {
        let balance = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = ?");
        Ok(balance.bind(ACCOUNT).fetch_one(&self.pool).await?)
    }
}
