//! Beside Redis, where several wait: `SET NX PX` and a script that deletes what is still its own, as the manual of Redis
//! has it and a careful person would write it.
//!
//! Tasks of one process queue at a `tokio::sync::Mutex` of the key, so that one of them asks the server; it polls with a
//! pause that doubles. It promises less: no renewal, no token, no wake-up between processes and no order between them,
//! nothing to see or to evict.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Script, Value};
use tokio::sync::OwnedMutexGuard;

use super::pause::{Pauses, random};
use super::scripts::connect;
use super::{Lock, Locker};
use crate::Fallible;

const LEASE: Duration = Duration::from_secs(30);

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(crate) struct Polling {
    connection: MultiplexedConnection,
    delete: Arc<Script>,
    queues: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

pub(crate) struct Key {
    name: String,
    connection: MultiplexedConnection,
    delete: Arc<Script>,
    queue: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) struct Held {
    _turn: OwnedMutexGuard<()>,
    value: u64,
}

impl Polling {
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        Ok(Polling {
            connection: connect(url).await?,
            delete: Arc::new(Script::new(DELETE)),
            queues: Mutex::default(),
        })
    }
}

impl Locker for Polling {
    type Lock = Key;

    fn lock_of(&self, key: &str) -> Key {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Key {
            name: key.to_owned(),
            connection: self.connection.clone(),
            delete: self.delete.clone(),
            queue: queues.entry(key.to_owned()).or_default().clone(),
        }
    }

    async fn close(self) -> Fallible<()> {
        Ok(())
    }
}

impl Lock for Key {
    type Guard = Held;

    async fn lock(&self) -> Fallible<Held> {
        let turn = self.queue.clone().lock_owned().await;
        let value = random();
        let mut command = redis::cmd("SET");
        command
            .arg(&self.name)
            .arg(value)
            .arg("NX")
            .arg("PX")
            .arg(LEASE.as_millis() as u64);
        let mut pauses = Pauses::new();
        while self.connection.clone().send_packed_command(&command).await? != Value::Okay {
            pauses.pause().await;
        }
        Ok(Held { _turn: turn, value })
    }

    async fn unlock(&self, held: Held) -> Fallible<()> {
        let mut call = self.delete.prepare_invoke();
        call.key(&self.name).arg(held.value);
        let deleted: u32 = call.invoke_async(&mut self.connection.clone()).await?;
        match deleted {
            1 => Ok(()),
            _ => Err("the key was no longer this holder's".into()),
        }
    }
}
