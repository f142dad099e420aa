//! Tenure and programs with the textbook's plain SQL never hold a key at once on MariaDB, and tokens rise, through evictions
//! and restarts (R20, R23).
#![cfg(feature = "mysql")]

mod mysql;
mod race;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mysql::{Case, config};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Params};
use race::{Textbook, race};
use tenure_sql::server::open;
use tokio::time::sleep;

/// The error of an INSERT whose key is there.
const DUPLICATE_KEY: u16 = 1062;

/// A connection of a program with plain SQL, which connects again when it is gone.
struct Plain {
    settings: mysql_async::Opts,
    name: String,
    conn: Option<Conn>,
}

impl Plain {
    fn new(case: &Case, number: u64) -> Self {
        Plain {
            settings: case.superuser_settings().into(),
            name: format!("textbook-{number}"),
            conn: None,
        }
    }

    /// Runs a statement. Returns the number of rows that it has changed.
    async fn change(&mut self, sql: &str, params: Vec<mysql_async::Value>) -> Result<u64, Error> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                let mut conn = Conn::new(self.settings.clone()).await?;
                conn.query_drop("SET time_zone = '+00:00'").await?;
                conn
            }
        };
        let changed = conn.exec_drop(sql, Params::Positional(params)).await;
        let count = conn.affected_rows();
        if !conn.is_disconnected() {
            self.conn = Some(conn);
        }
        changed.map(|()| count)
    }

    /// Runs a statement until the server has answered.
    async fn surely(&mut self, sql: &str, key: &str) {
        let name = self.name.clone();
        for _ in 0..200 {
            let params = vec![key.into(), name.as_str().into()];
            if self.change(sql, params).await.is_ok() {
                return;
            }
            // sleep: the server restarts meanwhile.
            sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Version(Plain);

impl Textbook for Version {
    async fn take(&mut self, key: &str) -> Result<Option<Option<i64>>, ()> {
        // A change of nothing connects.
        self.0.change("DO 0", Vec::new()).await.map_err(drop)?;
        let conn = self.0.conn.as_mut().ok_or(())?;
        let look = "SELECT version, locked FROM resource_lock WHERE resource_key = ?";
        let seen: Option<(i64, bool)> = conn.exec_first(look, (key,)).await.map_err(drop)?;
        let Some((version, false)) = seen else {
            return Ok(None);
        };
        let take = "UPDATE resource_lock SET locked = 1, lock_holder = ?, version = version + 1, update_time = NOW(6)
            WHERE resource_key = ? AND version = ? AND NOT locked";
        let params = vec![self.0.name.as_str().into(), key.into(), version.into()];
        let taken = self.0.change(take, params).await.map_err(drop)?;
        Ok((taken == 1).then_some(Some(version + 1)))
    }

    async fn give_back(&mut self, key: &str) {
        let sql = "UPDATE resource_lock SET locked = 0, lock_holder = NULL, version = version + 1,
                update_time = NOW(6), expire_time = NULL
            WHERE resource_key = ? AND lock_holder = ? AND locked";
        self.0.surely(sql, key).await;
    }
}

struct Unique(Plain);

impl Textbook for Unique {
    async fn take(&mut self, key: &str) -> Result<Option<Option<i64>>, ()> {
        let clean = "DELETE FROM distributed_lock WHERE lock_key = ? AND expire_time < NOW(6)";
        self.0.change(clean, vec![key.into()]).await.map_err(drop)?;
        let insert = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time)
            VALUES (?, ?, NOW(6) + INTERVAL 60 SECOND)";
        let params = vec![key.into(), self.0.name.as_str().into()];
        match self.0.change(insert, params).await {
            Ok(_) => Ok(Some(None)),
            Err(Error::Server(refusal)) if refusal.code == DUPLICATE_KEY => Ok(None),
            Err(_) => Err(()),
        }
    }

    async fn give_back(&mut self, key: &str) {
        let sql = "DELETE FROM distributed_lock WHERE lock_key = ? AND lock_value = ?";
        self.0.surely(sql, key).await;
    }
}

async fn races<T: Textbook>(layout: &'static str, program: fn(Plain) -> T) {
    let case = Case::alone(layout);
    let number = AtomicU64::new(0);
    let url = case.url(case.address());
    let grants = race(
        async || open(config(&url)).await.expect("the server answers"),
        async || program(Plain::new(&case, number.fetch_add(1, Ordering::Relaxed))),
        async || {
            let server = case.server.clone();
            let restart = move || server.lock().restart(tenure_servers::Data::Kept);
            let restarted = tokio::task::spawn_blocking(restart).await.expect("it ends");
            restarted.expect("the server starts again");
        },
    )
    .await;
    println!("{layout}: {grants} grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_with_a_version_are_held_once() {
    races("version", Version).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_rows_are_held_once() {
    races("unique", Unique).await;
}
