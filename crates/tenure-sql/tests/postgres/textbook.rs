//! Clients that lock with the textbook's plain SQL, as programs without this library do.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use super::Case;

/// A client of the textbook's table in the layouts `unique` and `version`. It names itself in its rows.
pub(crate) struct Textbook {
    client: Client,
    layout: &'static str,
    name: String,
}

/// Logs in as the superuser, with the case's schema before all others.
async fn log_in(case: &Case) -> Client {
    let mut config: tokio_postgres::Config = case.server.lock().url().parse().expect("a URL");
    config.options(format!("-c search_path={},pg_catalog", case.schema));
    let (client, connection) = config.connect(NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client
}

impl Textbook {
    pub(crate) async fn new(case: &Case, name: &str) -> Self {
        Textbook {
            client: log_in(case).await,
            layout: case.layout,
            name: name.to_owned(),
        }
    }

    /// Tries to lock a key, with a lease of 30 s if the layout has leases. Returns whether this client holds it now.
    pub(crate) async fn try_lock(&self, key: &str) -> bool {
        match self.layout {
            "unique" => self.insert(key).await,
            _ => self.compare_and_set(key).await,
        }
    }

    /// Deletes the row if its lease has ended, and inserts another: a duplicate key means that the lock is held.
    async fn insert(&self, key: &str) -> bool {
        let clean = "DELETE FROM distributed_lock WHERE lock_key = $1 AND expire_time < now()";
        self.client.execute(clean, &[&key]).await.expect("it may delete");
        let insert = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time)
            VALUES ($1, $2, now() + interval '30 seconds')";
        match self.client.execute(insert, &[&key, &self.name]).await {
            Ok(_) => true,
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Reads the row's version, and locks the row if it still has that version. Knows no `expire_time`.
    async fn compare_and_set(&self, key: &str) -> bool {
        let insert =
            "INSERT INTO resource_lock (resource_key) VALUES ($1) ON CONFLICT (resource_key) DO NOTHING";
        self.client.execute(insert, &[&key]).await.expect("it may insert");
        let look = "SELECT version FROM resource_lock WHERE resource_key = $1 AND locked = false";
        let Some(row) = self.client.query_opt(look, &[&key]).await.expect("it may look") else {
            return false;
        };
        let version: i64 = row.get(0);
        let lock = "UPDATE resource_lock SET locked = true, lock_holder = $2, version = version + 1, update_time = now()
            WHERE resource_key = $1 AND version = $3 AND locked = false";
        let changed = self.client.execute(lock, &[&key, &self.name, &version]).await;
        changed.expect("it may update") == 1
    }

    /// Unlocks a key. Returns whether this client held it.
    pub(crate) async fn unlock(&self, key: &str) -> bool {
        let unlock = match self.layout {
            "unique" => "DELETE FROM distributed_lock WHERE lock_key = $1 AND lock_value = $2",
            _ => {
                "UPDATE resource_lock SET locked = false, lock_holder = NULL, version = version + 1, update_time = now()
                 WHERE resource_key = $1 AND lock_holder = $2 AND locked = true"
            }
        };
        let changed = self.client.execute(unlock, &[&key, &self.name]).await;
        changed.expect("it may unlock") == 1
    }
}

/// A client of ShedLock's table, with the statements that ShedLock sends if it uses the database's time.
pub(crate) struct ShedLock {
    client: Client,
    /// The host's name, which all locks of a ShedLock client have in `locked_by`.
    host: String,
}

impl ShedLock {
    pub(crate) async fn new(case: &Case, host: &str) -> Self {
        ShedLock {
            client: log_in(case).await,
            host: host.to_owned(),
        }
    }

    /// Tries to lock a name for at most 30 s. Returns whether it is locked now.
    pub(crate) async fn try_lock(&self, name: &str) -> bool {
        let lock = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
            VALUES ($1, timezone('utc', now()) + interval '30 seconds', timezone('utc', now()), $2)
            ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', now()) + interval '30 seconds',
                locked_at = timezone('utc', now()), locked_by = $2
            WHERE shedlock.name = $1 AND shedlock.lock_until <= timezone('utc', now())";
        self.change(lock, name).await
    }

    /// Unlocks a name, which stays locked until `at_least` seconds after it was locked.
    pub(crate) async fn unlock(&self, name: &str, at_least: u32) {
        let unlock = format!(
            "UPDATE shedlock SET lock_until =
                greatest(locked_at + interval '{at_least} seconds', timezone('utc', now()))
             WHERE name = $1 AND locked_by = $2"
        );
        self.change(&unlock, name).await;
    }

    /// Restarts the time of a name that is locked. Returns whether it was.
    pub(crate) async fn extend(&self, name: &str) -> bool {
        let extend = "UPDATE shedlock SET lock_until = timezone('utc', now()) + interval '30 seconds'
            WHERE name = $1 AND locked_by = $2 AND lock_until > timezone('utc', now())";
        self.change(extend, name).await
    }

    async fn change(&self, statement: &str, name: &str) -> bool {
        let changed = self.client.execute(statement, &[&name, &self.host]).await;
        changed.expect("it may change the table") == 1
    }
}
