//! The shop's database: the charges, and the answer that was given to each request.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use tenure::FencingToken;

/// Handle of the database. Clones share one connection.
#[derive(Clone)]
pub(crate) struct Orders(Arc<Mutex<Connection>>);

/// The table `charges` plays the payment provider. Like a real provider, it takes the request's key and charges once per
/// key. No lock can prevent a second charge if a server dies between the charge and its answer, or is paused before the
/// charge; the provider's key does. The lock makes repeated requests wait for the first answer, instead of all asking the
/// provider.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS charges (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, body TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL, fence INTEGER NOT NULL);";

/// Charges once per idempotency key: a second charge with the same key has no effect.
const CHARGE: &str = "INSERT INTO charges (key, body) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";

/// Stores an answer with the token of the lock's holder. A holder with an older token replaces nothing.
const KEEP: &str = "INSERT INTO answers (key, answer, fence) VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET answer = excluded.answer, fence = excluded.fence WHERE fence <= excluded.fence";

impl Orders {
    pub(crate) fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Orders(Arc::new(Mutex::new(connection))))
    }

    /// The stored answer to the request with this key.
    pub(crate) async fn answer(&self, key: &str) -> rusqlite::Result<Option<String>> {
        let key = key.to_owned();
        self.run(move |connection| answer(connection, &key)).await
    }

    /// Charges, unless this key was charged before. Returns the number and the text of the key's charge.
    pub(crate) async fn charge(&self, key: &str, body: &str) -> rusqlite::Result<(i64, String)> {
        let (key, body) = (key.to_owned(), body.to_owned());
        self.run(move |connection| {
            connection.execute(CHARGE, params![key, body])?;
            let sql = "SELECT number, body FROM charges WHERE key = ?1";
            connection.query_row(sql, [key], |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .await
    }

    /// Stores an answer, unless a holder with a greater token has. Returns the answer that is then stored.
    pub(crate) async fn keep(
        &self,
        key: &str,
        new: String,
        token: Option<FencingToken>,
    ) -> rusqlite::Result<String> {
        let key = key.to_owned();
        let fence = token.map_or(0, FencingToken::as_i64);
        self.run(move |connection| {
            connection.execute(KEEP, params![key, new, fence])?;
            Ok(answer(connection, &key)?.unwrap_or(new))
        })
        .await
    }

    /// Runs a SQLite call, which blocks, on a thread for blocking work.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let connection = self.0.clone();
        let work = move || work(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work)
            .await
            .expect("a statement does not panic")
    }
}

fn answer(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT answer FROM answers WHERE key = ?1";
    connection.query_row(sql, [key], |row| row.get(0)).optional()
}
