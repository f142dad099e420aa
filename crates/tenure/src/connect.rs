//! Connects to a store by URL. The only module that knows every store.

#[cfg(feature = "quorum")]
mod redlock;

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, BackendError, Clock, Effect, Fault, SystemClock};
use tenure_endpoint::{InvalidUrl, StoreUrl};
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::engine::own_thread::OwnThread;
use crate::error::Error;
use crate::settings::Settings;

#[cfg(feature = "testing")]
pub(crate) use tenure_memory::{Memory, MemoryStore};

/// Pause after the first failed attempt to connect. Each pause is twice the one before, up to `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The least time for the first attempt to connect, however short the limit is: a limit of zero is a try, as in `lock_within`.
const FIRST_ATTEMPT: Duration = Duration::from_secs(1);

/// The Redis store, for programs that build its [`Config`](redis::Config) themselves: for connection settings that a
/// URL cannot express, or credentials from a callback.
///
/// # Examples
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::redis::{Config, Credentials, RedisStore, StoreUrl};
///
/// let config = Config::from_url(&StoreUrl::parse("redis://cache.example")?)?;
/// let config = config.credentials(|| async { Ok(Credentials::user("ada", "from the vault")) });
/// let client = tenure::Client::new(RedisStore::connect(config).await?, tenure::Settings::default());
/// # Ok(()) }
/// ```
#[cfg(feature = "redis")]
pub mod redis {
    pub use tenure_redis::{
        Config, Credentials, Host, Layout, Member, RedisCluster, RedisStore, Secret, StoreUrl, Tls,
    };
}

/// Locks in PostgreSQL, MySQL and MariaDB, for programs that build the [`Config`](sql::Config) themselves: for credentials from
/// a callback, such as the tokens by which databases of cloud providers are opened.
///
/// # Examples
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::sql::{Config, Credentials, StoreUrl, open};
///
/// let config = Config::from_url(&StoreUrl::parse("postgres://ada@db.example/shop?layout=version")?)?;
/// let config = config.credentials(async || Ok(Credentials::password("a token for 15 minutes")));
/// let client = tenure::Client::new(open(config).await?, tenure::Settings::default());
/// # Ok(()) }
/// ```
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod sql {
    pub use tenure_sql::server::{Config, Credentials, Secret, StoreUrl, open};
}

/// Locks in etcd, for programs that build the [`Config`](etcd::Config) themselves, and the evidence for transactions of their
/// own.
///
/// # Examples
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::etcd::{Config, Credentials, EtcdStore, StoreUrl};
///
/// let config = Config::from_url(&StoreUrl::parse("etcd://a.example,b.example,c.example/locks")?)?;
/// let config = config.credentials(async || Ok(Credentials::user("ada", "from the vault")));
/// let client = tenure::Client::new(EtcdStore::open(config).await?, tenure::Settings::default());
/// # Ok(()) }
/// ```
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use tenure_etcd::{Config, Credentials, EtcdStore, Host, LockEvidence, Secret, StoreUrl, Tls};
}

/// Locks in ZooKeeper, for programs that build the [`Config`](zookeeper::Config) themselves, and the evidence for transactions
/// of their own.
///
/// # Examples
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::zookeeper::{Config, Credentials, StoreUrl, ZookeeperStore};
///
/// let config = Config::from_url(&StoreUrl::parse("zookeeper://a.example,b.example,c.example/locks")?)?;
/// let config = config.credentials(async || Ok(Credentials::user("ada", "from the vault")));
/// let client = tenure::Client::new(ZookeeperStore::open(config).await?, tenure::Settings::default());
/// # Ok(()) }
/// ```
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    pub use tenure_zookeeper::{
        Config, Credentials, Host, Layout, LockEvidence, Secret, StoreUrl, Tls, ZookeeperStore,
    };
}

/// Connects to the store at `url`, with default settings. The runtime must have timers and I/O enabled, unless
/// [`connect_with`] is called with [`Settings::own_thread`].
///
#[cfg_attr(
    feature = "redis",
    doc = "The URL of a Redis store may have [options](tenure_redis#options-of-the-url), such as `connect_timeout`.\n"
)]
/// # Cancel safety
/// Dropping the future leaves nothing behind.
///
/// # Errors
/// [`Error::Invalid`] for an invalid URL (the message never shows its password); [`Error::Unsupported`] for a store
/// that is not in this build (the message names the feature to enable); [`Error::Backend`] if the store cannot be
/// reached.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Client, Error> {
    connect_with(url, Settings::default()).await
}

/// Connects to the store at `url`. Repeats a failed attempt only if [`Settings::connect_limit`] is set, and the failure
/// is transient.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
///
/// # Errors
/// Those of [`connect`]; [`Error::Closed`] if [`Settings::own_thread`] is set and the system cannot start a thread.
pub async fn connect_with(url: &str, settings: Settings) -> Result<Client, Error> {
    let url = StoreUrl::parse(url)?;
    if !settings.own_thread {
        return Ok(Client::new(open_within(&url, &settings).await?, settings));
    }
    let thread = OwnThread::start()?;
    let in_thread = settings.clone();
    let backend = thread
        .open(async move { open_within(&url, &in_thread).await })
        .await?;
    Ok(Client::on(thread, backend, settings))
}

/// Opens the store at `url`. Without a `connect_limit`, tries once. With one, tries again after each transient failure
/// until the limit has passed, and then returns the last failure. The first attempt has at least [`FIRST_ATTEMPT`].
async fn open_within(url: &StoreUrl, settings: &Settings) -> Result<Arc<dyn Backend>, Error> {
    let Some(limit) = settings.connect_limit else {
        return open(url, settings).await;
    };
    let until = SystemClock.now() + limit;
    let mut left = limit.max(FIRST_ATTEMPT);
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        match timeout(left, open(url, settings)).await {
            // `timeout` polls the attempt first, so an attempt that fails at once outlives a limit that has passed.
            Ok(Err(error)) if error.is_transient() && SystemClock.now() < until => last = Some(error),
            Ok(opened) => return opened,
            Err(_) => return Err(last.unwrap_or_else(|| not_connected(limit.max(FIRST_ATTEMPT)))),
        }
        sleep(pause.min(until - SystemClock.now())).await;
        pause = (2 * pause).min(LAST_PAUSE);
        left = until - SystemClock.now();
    }
}

/// The error if no attempt to connect ended within the limit.
fn not_connected(limit: Duration) -> Error {
    let message = format!("the store did not accept the connection within {limit:?}: see whether it runs");
    BackendError::new(Fault::Unavailable, Effect::None, message).into()
}

async fn open(url: &StoreUrl, settings: &Settings) -> Result<Arc<dyn Backend>, Error> {
    match url.scheme() {
        "memory" => memory(url),
        "sqlite" => sqlite(url, settings.allow_read_only).await,
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" => redis(url).await,
        "redis+cluster" | "rediss+cluster" => redis_cluster(url).await,
        "redlock" | "redlocks" => redlock(url).await,
        "postgres" | "postgresql" => postgres(url).await,
        "mysql" | "mariadb" => mysql(url).await,
        "etcd" | "etcds" => etcd(url).await,
        "zookeeper" | "zookeepers" => zookeeper(url).await,
        scheme => Err(left_out_or_unknown(scheme)),
    }
}

/// Returns the SQL statements that create the tables of the store at `url`. Does not connect.
///
/// SQLite creates its tables itself if it has the permission; use this to review the statements. The table of a database
/// server is created by these statements, or by [`create_schema`]. A comment in them names the permissions that
/// a role needs.
///
/// # Errors
/// [`Error::Unsupported`] for a store without tables, or one that is not in this build; [`Error::Invalid`] for an
/// invalid URL.
///
/// # Examples
/// ```
/// assert!(tenure::schema("memory:").is_err());
/// ```
pub fn schema(url: &str) -> Result<String, Error> {
    let url = StoreUrl::parse(url)?;
    match url.scheme() {
        store @ ("memory" | "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
        | "rediss+cluster" | "redlock" | "redlocks" | "etcd" | "etcds" | "zookeeper"
        | "zookeepers") => Err(unsupported(format!("the store `{store}:` has no tables"))),
        "sqlite" => sqlite_schema(&url),
        "postgres" | "postgresql" | "mysql" | "mariadb" => sql_schema(&url),
        scheme => Err(left_out_or_unknown(scheme)),
    }
}

/// Creates the tables of the store at `url`, if they are not there. The user in the URL must have the permission.
///
/// # Cancel safety
/// Dropping the future may leave the tables created or not.
///
/// # Errors
/// Those of [`schema`] and of [`connect`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert!(tenure::create_schema("memory:").await.is_err());
/// # }
/// ```
pub async fn create_schema(url: &str) -> Result<(), Error> {
    schema(url)?;
    let parsed = StoreUrl::parse(url)?;
    match parsed.scheme() {
        // It creates its tables when it opens the file. Nothing is held, so closing waits for the file alone.
        "sqlite" => connect(url).await?.close(CLOSING).await,
        _ => create_sql_schema(&parsed).await,
    }
}

/// Time limit for closing a file that was opened to create its tables.
const CLOSING: Duration = Duration::from_secs(10);

fn unsupported(message: impl Into<String>) -> Error {
    BackendError::unsupported(message.into()).into()
}

impl From<InvalidUrl> for Error {
    fn from(error: InvalidUrl) -> Self {
        Error::Invalid(error.to_string().into())
    }
}

#[cfg(feature = "memory")]
fn memory(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    url.options(&[])?;
    if !url.path().is_empty() {
        return Err(Error::Invalid(
            "`memory:` has no name: each connection is a store of its own".into(),
        ));
    }
    Ok(tenure_memory::Memory::new())
}

#[cfg(not(feature = "memory"))]
fn memory(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("memory"))
}

/// The options of an SQLite URL, after its `?`.
#[cfg(feature = "sqlite")]
const SQLITE_OPTIONS: &[tenure_endpoint::Known] = &[
    tenure_endpoint::Known::one_of("layout", &["claims"]),
    tenure_endpoint::Known::file_mode("mode"),
];

#[cfg(feature = "sqlite")]
async fn sqlite(url: &StoreUrl, allow_read_only: bool) -> Result<Arc<dyn Backend>, Error> {
    let options = url.options(SQLITE_OPTIONS)?;
    if url.path() == ":memory:" {
        let message = "`sqlite:` keeps locks in a file: for locks in memory use `memory:`, for a file of this name `sqlite:./:memory:`";
        return Err(Error::Invalid(message.into()));
    }
    let path = Some(url.path())
        .filter(|path| !path.is_empty())
        .map(std::path::PathBuf::from);
    let config = tenure_sql::sqlite::Config {
        file_mode: options.file_mode("mode"),
        allow_read_only,
        ..tenure_sql::sqlite::Config::default()
    };
    Ok(tenure_sql::sqlite::open_with(path, config).await?)
}

#[cfg(feature = "sqlite")]
fn sqlite_schema(url: &StoreUrl) -> Result<String, Error> {
    url.options(SQLITE_OPTIONS)?;
    Ok(tenure_sql::sqlite::schema()?)
}

#[cfg(not(feature = "sqlite"))]
fn sqlite_schema(_: &StoreUrl) -> Result<String, Error> {
    Err(missing("sqlite"))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &StoreUrl, _: bool) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("sqlite"))
}

#[cfg(feature = "redis")]
async fn redis(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    let config = tenure_redis::Config::from_url(url)?;
    Ok(tenure_redis::RedisStore::connect(config).await?)
}

#[cfg(feature = "redis")]
async fn redis_cluster(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    let config = tenure_redis::Config::from_url(url)?;
    Ok(tenure_redis::RedisCluster::connect(config).await?)
}

#[cfg(not(feature = "redis"))]
async fn redis_cluster(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("redis"))
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("redis"))
}

#[cfg(feature = "quorum")]
async fn redlock(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    redlock::open(url).await
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn sql_config(url: &StoreUrl) -> Result<tenure_sql::server::Config, Error> {
    Ok(tenure_sql::server::Config::from_url(url)?)
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn sql_schema(url: &StoreUrl) -> Result<String, Error> {
    Ok(tenure_sql::server::schema(&sql_config(url)?)?)
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn create_sql_schema(url: &StoreUrl) -> Result<(), Error> {
    Ok(tenure_sql::server::create(sql_config(url)?).await?)
}

#[cfg(not(any(feature = "postgres", feature = "mysql")))]
fn sql_schema(url: &StoreUrl) -> Result<String, Error> {
    Err(left_out_or_unknown(url.scheme()))
}

#[cfg(not(any(feature = "postgres", feature = "mysql")))]
async fn create_sql_schema(url: &StoreUrl) -> Result<(), Error> {
    Err(left_out_or_unknown(url.scheme()))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Ok(tenure_sql::server::open(sql_config(url)?).await?)
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("postgres"))
}

#[cfg(feature = "mysql")]
async fn mysql(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Ok(tenure_sql::server::open(sql_config(url)?).await?)
}

#[cfg(not(feature = "mysql"))]
async fn mysql(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("mysql"))
}

#[cfg(feature = "etcd")]
async fn etcd(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Ok(tenure_etcd::EtcdStore::open(tenure_etcd::Config::from_url(url)?).await?)
}

#[cfg(not(feature = "etcd"))]
async fn etcd(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("etcd"))
}

#[cfg(feature = "zookeeper")]
async fn zookeeper(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Ok(tenure_zookeeper::ZookeeperStore::open(tenure_zookeeper::Config::from_url(url)?).await?)
}

#[cfg(not(feature = "zookeeper"))]
async fn zookeeper(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("zookeeper"))
}

#[cfg(not(feature = "quorum"))]
async fn redlock(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("quorum"))
}

/// The error for a URL whose scheme is unknown, or that of a store left out of this build. Lists the stores of this
/// build.
fn left_out_or_unknown(scheme: &str) -> Error {
    let stores = [
        ("memory", cfg!(feature = "memory")),
        ("sqlite", cfg!(feature = "sqlite")),
        ("redis", cfg!(feature = "redis")),
        ("redis+sentinel", cfg!(feature = "redis")),
        ("redis+cluster", cfg!(feature = "redis")),
        ("redlock", cfg!(feature = "quorum")),
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
        ("etcd", cfg!(feature = "etcd")),
        ("zookeeper", cfg!(feature = "zookeeper")),
    ];
    let built = stores
        .iter()
        .filter(|(_, built)| *built)
        .map(|(store, _)| format!("`{store}:`"))
        .collect::<Vec<_>>();
    let built = match &built[..] {
        [] => "none".to_owned(),
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        [one, ..] => one.clone(),
    };
    match scheme {
        "valkey" => unsupported("write `redis://` for Valkey too: it speaks the same protocol"),
        "valkeys" => unsupported("write `rediss://` for Valkey too: it speaks the same protocol"),
        "zk" => unsupported("write `zookeeper://` for ZooKeeper"),
        "http" => unsupported("write `etcd://` for etcd; no other store has a URL that begins with `http`"),
        "https" => {
            unsupported("write `etcds://` for etcd; no other store has a URL that begins with `https`")
        }
        scheme => unsupported(format!("no store is named `{scheme}:`; this build has {built}")),
    }
}

#[cfg(not(all(
    feature = "memory",
    feature = "sqlite",
    feature = "redis",
    feature = "quorum",
    feature = "postgres",
    feature = "mysql",
    feature = "etcd",
    feature = "zookeeper"
)))]
fn missing(feature: &str) -> Error {
    unsupported(format!(
        "this store was left out of this build: enable the feature `{feature}` of the crate `tenure`"
    ))
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_scheme_that_is_not_ours_is_answered_with_the_one_to_write() {
        for (url, answer) in [
            ("valkey://a", "`redis://`"),
            ("zk://a", "`zookeeper://`"),
            ("http://a:2379", "`etcd://`"),
            ("https://a:2379", "`etcds://`"),
            ("nothing://a", "`memory:`"),
        ] {
            let refused = connect(url).await.expect_err("no store has this scheme");
            assert!(refused.to_string().contains(answer), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_client_keeps_nothing_of_a_key_that_it_no_longer_uses() {
        let client = connect("memory:").await.expect("memory is there");
        for key in ["a", "b"] {
            drop(client.mutex(key).lock().await);
        }
        let settled = async {
            while client.engine.queues().entries() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let limit = Duration::from_secs(10);
        let settled = tokio::time::timeout(limit, settled).await;
        settled.expect("the queues of both keys are dropped");
    }
}
