//! Tenure and programs with the textbook's plain SQL never hold a key at once on PostgreSQL, and tokens rise, through
//! evictions and restarts (R20, R23).
#![cfg(feature = "postgres")]

mod postgres_fixture;
mod race;

use std::time::Duration;

use postgres_fixture::Case;
use race::{Textbook, race};
use tenure_sql::server::open;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// A connection of a program with plain SQL, which connects again when it is gone.
struct Plain {
    url: String,
    table: String,
    name: String,
    client: Option<Client>,
}

impl Plain {
    fn new(case: &Case, number: u64) -> Self {
        Plain {
            url: case.server.lock().url(),
            table: case.table(),
            name: format!("textbook-{number}"),
            client: None,
        }
    }

    async fn client(&mut self) -> Result<&Client, ()> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.map_err(drop)?;
            tokio::spawn(connection);
            self.client = Some(client);
        }
        self.client.as_ref().ok_or(())
    }

    /// Runs a statement until the server has answered.
    async fn surely(&mut self, sql: &str, key: &str) {
        let name = self.name.clone();
        for _ in 0..200 {
            if let Ok(client) = self.client().await
                && client.execute(sql, &[&key, &name]).await.is_ok()
            {
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
        let (table, name) = (self.0.table.clone(), self.0.name.clone());
        let client = self.0.client().await?;
        let look = format!("SELECT version, locked FROM {table} WHERE resource_key = $1");
        let seen = client.query_opt(&look, &[&key]).await.map_err(drop)?;
        let Some((version, false)) = seen.map(|row| (row.get::<_, i64>(0), row.get::<_, bool>(1))) else {
            return Ok(None);
        };
        let take = format!(
            "UPDATE {table} SET locked = true, lock_holder = $2, version = version + 1, update_time = now()
             WHERE resource_key = $1 AND version = $3 AND NOT locked"
        );
        let taken = client
            .execute(&take, &[&key, &name, &version])
            .await
            .map_err(drop)?;
        Ok((taken == 1).then_some(Some(version + 1)))
    }

    async fn give_back(&mut self, key: &str) {
        let sql = format!(
            "UPDATE {} SET locked = false, lock_holder = NULL, version = version + 1, update_time = now(), expire_time = NULL
             WHERE resource_key = $1 AND lock_holder = $2 AND locked",
            self.0.table
        );
        self.0.surely(&sql, key).await;
    }
}

struct Unique(Plain);

impl Textbook for Unique {
    async fn take(&mut self, key: &str) -> Result<Option<Option<i64>>, ()> {
        let (table, name) = (self.0.table.clone(), self.0.name.clone());
        let client = self.0.client().await?;
        let clean = format!("DELETE FROM {table} WHERE lock_key = $1 AND expire_time < now()");
        client.execute(&clean, &[&key]).await.map_err(drop)?;
        let insert = format!(
            "INSERT INTO {table} (lock_key, lock_value, expire_time) VALUES ($1, $2, now() + interval '60 s')"
        );
        match client.execute(&insert, &[&key, &name]).await {
            Ok(_) => Ok(Some(None)),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Ok(None),
            Err(_) => Err(()),
        }
    }

    async fn give_back(&mut self, key: &str) {
        let sql = format!(
            "DELETE FROM {} WHERE lock_key = $1 AND lock_value = $2",
            self.0.table
        );
        self.0.surely(&sql, key).await;
    }
}

async fn races<T: Textbook>(layout: &'static str, program: fn(Plain) -> T) {
    let case = Case::alone(layout).await;
    let number = std::sync::atomic::AtomicU64::new(0);
    let grants = race(
        async || open(case.real_time()).await.expect("the server answers"),
        async || {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            program(Plain::new(&case, number))
        },
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
