//! Beside Redis, where nobody waits: two bare calls of the very scripts that Tenure's store runs, on one connection of
//! the same client crate, which writes the calls of all tasks as they come.
//!
//! This is what the server and the wire cost; it is no lock. Nothing is renewed, nobody waits and nobody is woken, and a
//! call without an answer leaves the key to its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Script, Value};

use super::{Lock, Locker};
use crate::Fallible;

/// The shared parts stand in the others where these lines are.
const SHARED: [(&str, &str); 2] = [
    (
        "--: include redisson_place\n",
        include_str!("../../../tenure-redis/scripts/redisson_place.lua"),
    ),
    (
        "--: include redisson_owners\n",
        include_str!("../../../tenure-redis/scripts/redisson_owners.lua"),
    ),
];
const ACQUIRE: &str = include_str!("../../../tenure-redis/scripts/redisson_acquire.lua");
const RELEASE: &str = include_str!("../../../tenure-redis/scripts/redisson_release.lua");

const COUNTER: &str = "tenure_tokens";
const CLIENT: &str = "00000000-0000-4000-8000-000000000000";
const CLAIMS: &str = "tenure_claims:00000000-0000-4000-8000-000000000000";
const DOUBTS: &str = "tenure_doubts:00000000-0000-4000-8000-000000000000";
const LEASE_MS: u64 = 30_000;
const GRANTS: u64 = 1;
/// In microseconds since 1970, beyond any that the server's clock shows.
const ANY_TIME: u64 = 1 << 52;
/// How an answer begins to a claim that was granted, or given back.
const DONE: &[u8] = b"1 ";

pub(crate) struct Scripts {
    shared: Arc<Shared>,
}

struct Shared {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    claims: AtomicU64,
}

pub(crate) struct Key {
    name: String,
    shared: Arc<Shared>,
}

impl Scripts {
    /// Connects, and teaches the server the scripts.
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let mut connection = connect(url).await?;
        let mut hashes = Vec::new();
        for source in [ACQUIRE, RELEASE] {
            let parts = SHARED.iter();
            let source = parts.fold(source.to_owned(), |source, (place, part)| {
                source.replace(place, part)
            });
            let script = Script::new(&source);
            hashes.push(script.prepare_invoke().load_async(&mut connection).await?);
        }
        let [acquire, release] =
            <[String; 2]>::try_from(hashes).map_err(|_| "two scripts have two hashes")?;
        Ok(Scripts {
            shared: Arc::new(Shared {
                connection,
                acquire,
                release,
                claims: AtomicU64::new(0),
            }),
        })
    }
}

/// A connection without a timer for each call, as Tenure's store has it.
pub(crate) async fn connect(url: &str) -> Fallible<MultiplexedConnection> {
    let settings = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(url)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&settings)
        .await?)
}

impl Locker for Scripts {
    type Lock = Key;

    fn lock_of(&self, key: &str) -> Key {
        Key {
            name: key.to_owned(),
            shared: self.shared.clone(),
        }
    }

    async fn close(self) -> Fallible<()> {
        Ok(())
    }
}

impl Lock for Key {
    /// The claim's owner.
    type Guard = String;

    async fn lock(&self) -> Fallible<String> {
        let claim = self.shared.claims.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{CLIENT}:{claim}");
        let mut command = self.call(&self.shared.acquire, &[COUNTER, CLAIMS, DOUBTS], 4);
        command.arg(&owner).arg(LEASE_MS).arg(ANY_TIME).arg(GRANTS);
        self.send(&command).await?;
        Ok(owner)
    }

    async fn unlock(&self, owner: String) -> Fallible<()> {
        let mut command = self.call(&self.shared.release, &[], 4);
        command.arg(&owner).arg("").arg(0).arg(CLIENT);
        self.send(&command).await
    }
}

impl Key {
    fn call(&self, hash: &str, more: &[&str], arguments: usize) -> Cmd {
        let mut command = Cmd::with_capacity(4 + more.len() + arguments, 256);
        command.arg("EVALSHA").arg(hash).arg(1 + more.len());
        command.arg(&self.name).arg(more);
        command
    }

    /// Both scripts answer 1 first if they did what was asked.
    async fn send(&self, command: &Cmd) -> Fallible<()> {
        match self
            .shared
            .connection
            .clone()
            .send_packed_command(command)
            .await?
        {
            Value::BulkString(said) if said.starts_with(DONE) => Ok(()),
            other => Err(format!("the bare scripts answer {other:?}").into()),
        }
    }
}
