//! Configuration: the server's address, credentials, timeouts and TLS.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, Effect, Fault, SystemClock};
use tenure_endpoint::{Host, Known, Options, Secret, StoreUrl, read_password_file};

use crate::credentials::{Credentials, CredentialsSource};

/// Claims are batched while at least this many calls are in flight. With fewer, the server is idle between calls, so a
/// claim that is sent alone is served sooner.
const BATCH_FROM: usize = 12;

const OPTIONS: &[Known] = &[
    Known::one_of("layout", &["redisson", "plain", "spring"]),
    Known::one_of("fencing", &["redisson"]),
    Known::duration("connect_timeout"),
    Known::duration("command_timeout"),
    Known::flag("spin"),
    Known::path("password_file"),
    Known::path("ca"),
    Known::path("cert"),
    Known::path("key"),
    Known::text("replicas"),
    Known::duration("replica_wait"),
];

/// Address, credentials, timeouts and TLS settings of a Redis server.
///
/// # Examples
/// ```
/// use tenure_endpoint::StoreUrl;
/// use tenure_redis::Config;
///
/// let config = Config::from_url(&StoreUrl::parse("redis://ada:s3cr3t@cache.example/2")?)?;
/// assert_eq!(config.address(), "cache.example:6379");
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The server. The default port is 6379.
    pub(crate) host: Host,
    /// The nodes of a cluster that the URL names; empty for a single server.
    pub(crate) seeds: Vec<Host>,
    /// The ACL user. Without one, the password is that of the default user.
    pub(crate) user: Option<String>,
    /// The password, if the server asks for one. With a `user` but no password, the client logs in with an empty one.
    pub(crate) password: Option<Secret>,
    /// The file that holds the password, read again at each connect. A file replaces `password`.
    pub(crate) password_file: Option<PathBuf>,
    /// Callback that fetches user and password at each connect. It replaces the configured ones.
    pub(crate) credentials: Option<CredentialsSource>,
    /// Number of the database: 0 unless the URL's path names another.
    pub(crate) database: u32,
    /// Time limit for connecting: 5 s by default.
    pub(crate) connect_timeout: Duration,
    /// Time limit for a reply: 3 s by default, as in Redisson. A connection that exceeds the limit is closed, at most a
    /// quarter of the limit later, and all its calls fail.
    pub(crate) command_timeout: Duration,
    /// TLS settings; `None` for plain text.
    pub(crate) tls: Option<Tls>,
    /// Lets a lone caller spin for its reply.
    ///
    /// A caller that calls again within 100 µs polls the socket for up to 100 µs before its thread sleeps. This is
    /// faster if the server runs on the same machine, but keeps the core busy and other tasks waiting. Default: true.
    pub(crate) spin: bool,
    /// The clock that measures leases: by default the system's.
    pub(crate) clock: Arc<dyn Clock>,
    /// Claims are batched while at least this many calls are in flight: by default 12, in tests also fewer.
    pub(crate) batch_from: usize,
    /// Number of batches in flight at once. `None`, the default, derives it from the round-trip time; tests fix it.
    pub(crate) concurrent_batches: Option<usize>,
}

/// TLS settings: the trusted authorities, and the certificate of the client.
///
/// # Examples
/// See [`Config`]: a URL with the scheme `rediss://` creates these settings.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The file with the certificates of the trusted authorities (PEM). Without a file, the system's are trusted.
    pub ca: Option<PathBuf>,
    /// The files with the client's certificate and key (PEM), if the server asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Config {
    /// Configures a server at `host`, with defaults for the rest.
    pub fn at(host: Host) -> Self {
        Config {
            host,
            seeds: Vec::new(),
            user: None,
            password: None,
            password_file: None,
            credentials: None,
            database: 0,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(3),
            tls: None,
            spin: true,
            clock: Arc::new(SystemClock),
            batch_from: BATCH_FROM,
            concurrent_batches: None,
        }
    }

    /// Parses `redis://[user:pass@]host[:port][/db][?options]`, or `rediss://…` for TLS.
    ///
    /// Reads a password file at once, to refuse a bad one early, and again at each connect. Refuses a user without a
    /// password, because such a client would act as the default user.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for a malformed URL or option, [`Fault::Unsupported`] for an option that is not supported.
    /// No message contains the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let options = url.options(OPTIONS).map_err(invalid)?;
        refuse_unsupported(&options)?;
        let is_cluster = url.scheme().ends_with("+cluster");
        let (host, seeds) = match url.hosts() {
            [host, ..] if is_cluster => (host, url.hosts().to_vec()),
            [host] => (host, Vec::new()),
            _ => {
                return Err(invalid(
                    "a Redis URL names one server; a list of servers is a cluster's, sentinels' or a quorum's, which are not \
                 served",
                ));
            }
        };
        let database = match url.path() {
            "" => 0,
            path => path
                .parse()
                .map_err(|_| invalid("the path of a Redis URL is the number of a database, such as `/0`"))?,
        };
        let password = password(url, &options)?;
        if url.user().is_some() && password.is_none() {
            // The message does not repeat the user name, because it may be a misplaced password.
            return Err(invalid(
                "the URL names a user and no password: write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for \
                 the default user's, or name a `password_file`; a user with `nopass` takes any password",
            ));
        }
        let defaults = Config::at(host.clone());
        Ok(Config {
            seeds,
            user: url.user().map(str::to_owned),
            password,
            password_file: password_file(&options),
            database,
            connect_timeout: limit(&options, "connect_timeout")?.unwrap_or(defaults.connect_timeout),
            command_timeout: limit(&options, "command_timeout")?.unwrap_or(defaults.command_timeout),
            tls: tls(url, &options)?,
            spin: options.flag("spin").unwrap_or(defaults.spin),
            ..defaults
        })
    }

    /// Sets the server. The default port is 6379.
    #[must_use]
    pub fn host(self, host: Host) -> Self {
        Config { host, ..self }
    }

    /// Sets the ACL user. Without one, the password is that of the default user.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        let user = Some(user.into());
        Config { user, ..self }
    }

    /// Sets the password.
    #[must_use]
    pub fn password(self, password: Secret) -> Self {
        let password = Some(password);
        Config { password, ..self }
    }

    /// Sets the file that holds the password, read again at each connect so that the password can be rotated.
    #[must_use]
    pub fn password_file(self, file: impl Into<PathBuf>) -> Self {
        let password_file = Some(file.into());
        Config {
            password_file,
            ..self
        }
    }

    /// Sets a callback that fetches user and password at each connect, instead of fixed ones: for tokens that expire.
    ///
    /// Connecting waits for the callback, within [`connect_timeout`](Config::connect_timeout). If the callback fails,
    /// connecting fails with its error, and the next attempt calls it again.
    ///
    /// # Examples
    /// ```
    /// use tenure_redis::{Config, Credentials, StoreUrl};
    ///
    /// let url = StoreUrl::parse("redis://cache.example")?;
    /// let config = Config::from_url(&url)?.credentials(async || {
    ///     // Ask the vault here.
    ///     Ok(Credentials::user("ada", "s3cr3t"))
    /// });
    /// assert!(!format!("{config:?}").contains("s3cr3t"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn credentials<F>(self, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BackendError>> + Send + 'static,
    {
        let credentials = Some(CredentialsSource::new(fetch));
        Config { credentials, ..self }
    }

    /// Sets the number of the database: 0 by default.
    #[must_use]
    pub fn database(self, database: u32) -> Self {
        Config { database, ..self }
    }

    /// Sets how long it may take to connect: 5 s by default, enough for three lost packets.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Config {
            connect_timeout,
            ..self
        }
    }

    /// Sets how long the server may take to reply: 3 s by default, as in Redisson.
    #[must_use]
    pub fn command_timeout(self, command_timeout: Duration) -> Self {
        Config {
            command_timeout,
            ..self
        }
    }

    /// Connects with TLS; the default is plain text.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        let tls = Some(tls);
        Config { tls, ..self }
    }

    /// Sets whether a lone caller that calls again within 100 µs polls the socket for its reply: true by default.
    #[must_use]
    pub fn spin(self, spin: bool) -> Self {
        Config { spin, ..self }
    }

    /// Sets the clock that measures leases: the system's by default.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Config { clock, ..self }
    }

    /// Sets the number of calls in flight from which on claims are batched (`None`: no change), and the number of batches
    /// in flight at once (`None`: derived from the round-trip time).
    #[cfg(feature = "__own-tests")]
    #[doc(hidden)]
    #[must_use]
    pub fn batching(self, batch_from: Option<usize>, concurrent_batches: Option<usize>) -> Self {
        let batch_from = batch_from.unwrap_or(self.batch_from);
        Config {
            batch_from,
            concurrent_batches,
            ..self
        }
    }

    /// The server as `host:port`.
    pub fn address(&self) -> String {
        if self.host.port().is_some() {
            return self.host.to_string();
        }
        format!("{}:{}", self.host, self.port())
    }

    /// The nodes of a cluster that the URL names.
    pub(crate) fn seeds(&self) -> Result<Vec<Host>, BackendError> {
        match self.seeds.is_empty() {
            true => Err(invalid(
                "this is no URL of a cluster: write `redis+cluster://HOST,HOST`",
            )),
            false => Ok(self.seeds.clone()),
        }
    }

    /// Fails if the configuration is that of a cluster.
    pub(crate) fn refuse_cluster(&self) -> Result<(), BackendError> {
        match self.seeds.is_empty() {
            true => Ok(()),
            false => Err(invalid(
                "this is the URL of a cluster: connect with `RedisCluster`",
            )),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.host.port_or(6379)
    }
}

fn refuse_unsupported(options: &Options) -> Result<(), BackendError> {
    if let Some(layout @ ("plain" | "spring")) = options.one_of("layout") {
        return Err(BackendError::unsupported(format!(
            "the layout `{layout}` is not served: leave `layout` out, for Redisson's"
        )));
    }
    if options.one_of("fencing").is_some() {
        return Err(BackendError::unsupported(
            "RFencedLock's own counter is not served: leave `fencing` out, for tokens that leave nothing behind per lock",
        ));
    }
    if options.text("replicas").is_some() || options.duration("replica_wait").is_some() {
        return Err(BackendError::unsupported(
            "waiting for replicas is not served: leave `replicas` and `replica_wait` out",
        ));
    }
    Ok(())
}

/// Reads a timeout option, if it is given. Fails if it is zero.
fn limit(options: &Options, name: &str) -> Result<Option<Duration>, BackendError> {
    match options.duration(name) {
        Some(limit) if limit.is_zero() => Err(invalid(format!("`{name}` must be longer than 0"))),
        limit => Ok(limit),
    }
}

fn password(url: &StoreUrl, options: &Options) -> Result<Option<Secret>, BackendError> {
    let Some(path) = options.path("password_file") else {
        return Ok(url.password().cloned());
    };
    if url.password().is_some() {
        return Err(invalid(
            "the password stands in the URL and in `password_file`: give one of them",
        ));
    }
    let file = read_password_file(path).map_err(invalid)?;
    if file.readable_by_all {
        tracing::warn!(path = %path.display(), "everyone on this machine can read the password file: chmod 600 it");
    }
    Ok(Some(file.password))
}

/// The password file, if each connect can read it again: a pipe is read only once.
fn password_file(options: &Options) -> Option<PathBuf> {
    let path = options.path("password_file").filter(|path| path.is_file())?;
    Some(path.to_owned())
}

fn tls(url: &StoreUrl, options: &Options) -> Result<Option<Tls>, BackendError> {
    let path = |name| options.path(name).map(std::path::Path::to_owned);
    let given = ["ca", "cert", "key"].map(path);
    if !url.scheme().starts_with("rediss") {
        return match given.iter().any(Option::is_some) {
            true => Err(invalid("`ca`, `cert` and `key` are for TLS: write `rediss://`")),
            false => Ok(None),
        };
    }
    let [ca, cert, key] = given;
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err(invalid("`cert` and `key` belong together: give both")),
    };
    Ok(Some(Tls { ca, identity }))
}

fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config, BackendError> {
        Config::from_url(&StoreUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn a_url_says_where_who_and_for_how_long() {
        let read = config(
            "redis://ada:s3cr3t@cache:6380/4?connect_timeout=1s&command_timeout=250ms&spin=false&layout=redisson",
        );
        let read = read.expect("it makes sense");
        assert_eq!((read.address().as_str(), read.database), ("cache:6380", 4));
        assert_eq!(read.user.as_deref(), Some("ada"));
        assert_eq!(
            (read.connect_timeout, read.command_timeout),
            (Duration::from_secs(1), Duration::from_millis(250))
        );
        assert!(!read.spin);
        let usual = config("redis://cache").expect("it makes sense");
        assert_eq!(usual.address(), "cache:6379");
        assert_eq!(
            (usual.connect_timeout, usual.command_timeout),
            (Duration::from_secs(5), Duration::from_secs(3))
        );
        assert!(usual.spin);
    }
}
