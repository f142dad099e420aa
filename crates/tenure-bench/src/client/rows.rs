//! The baseline for PostgreSQL: the very statements of Tenure's layout `version`, prepared, on one connection.
//!
//! So it costs what the server takes for them. It promises less than Tenure: nothing renews the lease, a lost reply leaves the
//! row held, and a connection that is lost is not replaced. `waiting` implements the wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::waiting::BareStore;
use crate::Fallible;

const LEASE: Duration = Duration::from_secs(30);
/// A request that reaches the server later has no effect.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Number of tokens of each grant.
const TOKENS: i64 = 1;
/// Number of values in the statements that lock and unlock a row.
const VALUES_TO_TAKE: usize = 6;
const VALUES_TO_FREE: usize = 2;
/// How often the statements are looked at. On a busy machine another one, such as a renewal, may be the latest.
const LESSONS: u32 = 20;

pub(crate) struct Rows {
    client: Client,
    take: Statement,
    free: Statement,
}

impl Rows {
    /// Connects, and learns from the server which statements Tenure sends. The server must show long statements.
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let (server, _) = url.split_once('?').ok_or("the URL names no layout")?;
        let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
        tokio::spawn(connection);
        let name = format!("learns-{}", std::process::id());
        let latest = async || {
            let query = "SELECT query FROM pg_stat_activity WHERE application_name = $1";
            Fallible::Ok(client.query_one(query, &[&name]).await?.try_get::<_, String>(0)?)
        };
        let tenure = tenure::connect(&format!("{url}&application_name={name}")).await?;
        for _ in 0..LESSONS {
            let guard = tenure.mutex(&*name).lock().await?;
            let take = client.prepare(&latest().await?).await?;
            guard.unlock().await?;
            let free = client.prepare(&latest().await?).await?;
            if (take.params().len(), free.params().len()) == (VALUES_TO_TAKE, VALUES_TO_FREE) {
                tenure.close(TIME_LIMIT).await?;
                return Ok(Rows { client, take, free });
            }
        }
        Err("the server showed other statements than those that lock and unlock a row".into())
    }
}

impl BareStore for Rows {
    async fn take(&self, key: &str, holder: i64) -> Fallible<bool> {
        let id = holder.to_string();
        let lease = i64::try_from(LEASE.as_micros())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let until = i64::try_from((now + TIME_LIMIT).as_micros())?;
        let values: [&(dyn ToSql + Sync); VALUES_TO_TAKE] = [&key, &id, &until, &id, &TOKENS, &lease];
        let taken = self.client.query_one(&self.take, &values).await?;
        Ok(taken.try_get::<_, i64>("granted")? == 1)
    }

    async fn free(&self, key: &str, holder: i64) -> Fallible<bool> {
        let id = holder.to_string();
        Ok(self.client.execute(&self.free, &[&key, &id]).await? == 1)
    }
}
