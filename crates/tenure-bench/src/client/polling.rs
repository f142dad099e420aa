//! Beside Redis: `SET NX PX` and a script that deletes what is still its own, as the manual of Redis has it.
//!
//! It promises less: no renewal, no token, no wake-up between processes and no order between them, nothing to see or to
//! evict. How it waits is in `waiting`.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, Value};
use tokio::sync::Mutex;

use super::tokio_mutex::TokioMutexes;
use super::waiting::{Held, random, wait};
use super::{Lock, Locker};
use crate::Fallible;

const LEASE: Duration = Duration::from_secs(30);

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) struct Polling {
    connection: MultiplexedConnection,
    delete: Arc<Script>,
    lines: TokioMutexes,
}

pub(crate) struct Key {
    name: String,
    connection: MultiplexedConnection,
    delete: Arc<Script>,
    line: Arc<Mutex<()>>,
}

impl Polling {
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        Ok(Polling {
            connection: connect(url).await?,
            delete: Arc::new(Script::new(DELETE)),
            lines: TokioMutexes::default(),
        })
    }
}

/// A connection without a timer for each call, as Tenure's store has it.
async fn connect(url: &str) -> Fallible<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(url)?;
    let connection = client.get_multiplexed_async_connection_with_config(&settings);
    Ok(connection.await?)
}

impl Locker for Polling {
    type Lock = Key;

    fn lock_of(&self, key: &str) -> Key {
        Key {
            name: key.to_owned(),
            connection: self.connection.clone(),
            delete: self.delete.clone(),
            line: self.lines.lock_of(key),
        }
    }
}

impl Lock for Key {
    /// Whose value is the key's.
    type Guard = Held<u64>;

    async fn lock(&self) -> Fallible<Held<u64>> {
        let value = random();
        let mut command = redis::cmd("SET");
        command
            .arg(&self.name)
            .arg(value)
            .arg("NX")
            .arg("PX")
            .arg(LEASE.as_millis() as u64);
        let ask = || async {
            let answer = self.connection.clone().send_packed_command(&command).await?;
            Ok((answer == Value::Okay).then_some(value))
        };
        wait(&self.line, ask).await
    }

    async fn unlock(&self, held: Held<u64>) -> Fallible<()> {
        let mut call = self.delete.prepare_invoke();
        call.key(&self.name).arg(held.granted);
        let deleted: u32 = call.invoke_async(&mut self.connection.clone()).await?;
        match deleted {
            1 => Ok(()),
            _ => Err("the key was no longer this holder's".into()),
        }
    }
}
