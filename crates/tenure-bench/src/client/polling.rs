//! The baseline for Redis: `SET NX PX` to lock, and a script that deletes the key if it has the client's own value,
//! as the Redis manual recommends.
//!
//! This promises less than Tenure: no renewal, no token, no wake-up and no order between processes, no inspection, no
//! eviction. `waiting` implements the wait.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, Value};

use super::waiting::BareStore;
use crate::Fallible;

const LEASE: Duration = Duration::from_secs(30);

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) struct Polling {
    connection: MultiplexedConnection,
    delete: Script,
}

impl Polling {
    /// Connects without a time limit for calls, because the limit would need a timer for each call. Tenure's store
    /// has a time limit, but no timer for each call.
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let settings = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&settings);
        Ok(Polling {
            connection: connection.await?,
            delete: Script::new(DELETE),
        })
    }
}

impl BareStore for Polling {
    async fn take(&self, key: &str, holder: i64) -> Fallible<bool> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(holder).arg("NX");
        command.arg("PX").arg(LEASE.as_millis() as u64);
        let answer = self.connection.clone().send_packed_command(&command).await?;
        Ok(answer == Value::Okay)
    }

    async fn free(&self, key: &str, holder: i64) -> Fallible<bool> {
        let mut call = self.delete.prepare_invoke();
        call.key(key).arg(holder);
        let deleted: u32 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(deleted == 1)
    }
}
