//! Clients that lock with plain SQL, as programs without this library do.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use super::Case;

/// A client of the case's table that is not ours: with the textbook's statements in the layouts `unique` and `version`, and
/// with those of ShedLock in `shedlock`. It names itself in its rows.
pub(crate) struct Textbook {
    client: Client,
    layout: &'static str,
    name: String,
}

impl Textbook {
    /// Logs in as the superuser, with the case's schema before all others: `now()` is the case's time.
    pub(crate) async fn new(case: &Case, name: &str) -> Self {
        let mut config: tokio_postgres::Config = case.server.lock().url().parse().expect("a URL");
        config.options(format!("-c search_path={},pg_catalog", case.schema));
        let (client, connection) = config.connect(NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        Textbook {
            client,
            layout: case.layout,
            name: name.to_owned(),
        }
    }

    /// Tries to lock a key, with a lease of 30 s if the layout has leases. Returns whether this client holds it now.
    pub(crate) async fn try_lock(&self, key: &str) -> bool {
        match self.layout {
            "unique" => self.insert(key).await,
            "version" => self.compare_and_set(key).await,
            _ => self.insert_or_take_over(key).await,
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

    async fn insert_or_take_over(&self, name: &str) -> bool {
        let lock = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by)
            VALUES ($1, timezone('utc', now()) + interval '30 seconds', timezone('utc', now()), $2)
            ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', now()) + interval '30 seconds',
                locked_at = timezone('utc', now()), locked_by = $2
            WHERE shedlock.name = $1 AND shedlock.lock_until <= timezone('utc', now())";
        self.changes(lock, name).await
    }

    /// Unlocks a key. Returns whether this client held it.
    pub(crate) async fn unlock(&self, key: &str) -> bool {
        let unlock = match self.layout {
            "unique" => "DELETE FROM distributed_lock WHERE lock_key = $1 AND lock_value = $2",
            "version" => {
                "UPDATE resource_lock SET locked = false, lock_holder = NULL, version = version + 1, update_time = now()
                 WHERE resource_key = $1 AND lock_holder = $2 AND locked = true"
            }
            _ => return self.unlock_after(key, 0).await,
        };
        self.changes(unlock, key).await
    }

    /// Unlocks a name of ShedLock, from this time after it was locked on. Returns whether this client held it.
    pub(crate) async fn unlock_after(&self, name: &str, seconds: u32) -> bool {
        let unlock = format!(
            "UPDATE shedlock SET lock_until = greatest(locked_at + interval '{seconds} seconds', timezone('utc', now()))
             WHERE name = $1 AND locked_by = $2"
        );
        self.changes(&unlock, name).await
    }

    /// Restarts the lease of a name of ShedLock. Returns whether this client held it.
    pub(crate) async fn extend(&self, name: &str) -> bool {
        let extend = "UPDATE shedlock SET lock_until = timezone('utc', now()) + interval '30 seconds'
            WHERE name = $1 AND locked_by = $2 AND lock_until > timezone('utc', now())";
        self.changes(extend, name).await
    }

    async fn changes(&self, statement: &str, key: &str) -> bool {
        let changed = self.client.execute(statement, &[&key, &self.name]).await;
        changed.expect("it may change the table") == 1
    }
}
