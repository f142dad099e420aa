//! Where a server is, who we are to it, and how long things may take.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, Effect, Fault, SystemClock};
use tenure_endpoint::{Host, Known, Options, Secret, StoreUrl, read_password_file};

use crate::together::ALONE;

/// What a Redis URL may say after its `?`.
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

/// How to reach a Redis server, and what to expect of it.
///
/// # Examples
/// ```
/// use tenure_endpoint::StoreUrl;
/// use tenure_redis::Config;
///
/// let config = Config::from_url(&StoreUrl::parse("redis://ada:s3cr3t@cache.example/2")?)?;
/// assert_eq!((config.address(), config.database), ("cache.example:6379".to_owned(), 2));
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The server. Its port is 6379 unless it says otherwise.
    pub host: Host,
    /// The ACL user; without one a password is the default user's.
    pub user: Option<String>,
    /// The password, if the server asks for one; a user without one is introduced with an empty password.
    pub password: Option<Secret>,
    /// The file that holds the password, read again at each connect so that the password can be rotated; `password` is used
    /// without it.
    pub password_file: Option<PathBuf>,
    /// The number of the database: 0 unless the URL's path names another.
    pub database: u32,
    /// How long it may take to connect: 5 s, as long as three lost packets cost.
    pub connect_timeout: Duration,
    /// How long the server may take to answer: 3 s, Redisson's own limit. A connection that takes longer is given up with
    /// all that is under way on it, within a quarter more than that.
    pub command_timeout: Duration,
    /// Whether to speak TLS, and how; `None` for plain text.
    pub tls: Option<Tls>,
    /// Whether a lone caller that asks again within 100 µs spins for its answer for up to 100 µs before its thread sleeps.
    /// The default is true. It is faster with a server on the same machine, but keeps the core busy, and other tasks of the
    /// thread wait.
    pub spin: bool,
    /// The clock on which leases are believed: the system's.
    pub clock: Arc<dyn Clock>,
    /// How many calls may be under way before claims are gathered and travel together. Tests gather from the first on.
    #[doc(hidden)]
    pub alone: usize,
    /// How many calls with gathered claims are under way at once; by default as the distance asks for. Tests say it.
    #[doc(hidden)]
    pub side_by_side: Option<usize>,
}

/// How to prove to each other who client and server are.
///
/// # Examples
/// See [`Config`], which has one for a URL of the scheme `rediss`.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The file with the certificates of the authorities to trust (PEM); the system's are trusted without it.
    pub ca: Option<PathBuf>,
    /// The files with our own certificate and its key (PEM), if the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Config {
    /// A server at that address with everything else as usual.
    pub fn at(host: Host) -> Self {
        Config {
            host,
            user: None,
            password: None,
            password_file: None,
            database: 0,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(3),
            tls: None,
            spin: true,
            clock: Arc::new(SystemClock),
            alone: ALONE,
            side_by_side: None,
        }
    }

    /// Reads `redis://[user:pass@]host[:port][/db][?options]`, or `rediss://…` for TLS. A password file is read at once,
    /// to refuse a bad one early, and again at each connect. A user without a password is refused: whoever forgot it would act as the default user.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for what makes no sense, [`Fault::Unsupported`] for what is not served, both in words that
    /// never repeat the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let options = url.options(OPTIONS).map_err(invalid)?;
        refuse_what_is_not_served(&options)?;
        let [host] = url.hosts() else {
            return Err(invalid(
                "a Redis URL names one server; a list of servers is a cluster's, sentinels' or a quorum's, which are not \
                 served",
            ));
        };
        let database = match url.path() {
            "" => 0,
            path => path
                .parse()
                .map_err(|_| invalid("the path of a Redis URL is the number of a database, such as `/0`"))?,
        };
        let password = password(url, &options)?;
        if url.user().is_some() && password.is_none() {
            // The name is not repeated: elsewhere a password may stand there.
            return Err(invalid(
                "the URL names a user and no password: write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for \
                 the default user's, or name a `password_file`; a user with `nopass` takes any password",
            ));
        }
        let usual = Config::at(host.clone());
        Ok(Config {
            user: url.user().map(str::to_owned),
            password,
            password_file: password_file(&options),
            database,
            connect_timeout: limit(&options, "connect_timeout")?.unwrap_or(usual.connect_timeout),
            command_timeout: limit(&options, "command_timeout")?.unwrap_or(usual.command_timeout),
            tls: tls(url, &options)?,
            spin: options.flag("spin").unwrap_or(usual.spin),
            ..usual
        })
    }

    /// The server as `host:port`.
    pub fn address(&self) -> String {
        if self.host.port().is_some() {
            return self.host.to_string();
        }
        format!("{}:{}", self.host, self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.host.port_or(6379)
    }
}

fn refuse_what_is_not_served(options: &Options) -> Result<(), BackendError> {
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

/// A time limit; none is as short as no time at all.
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

/// The password file, if it can be read more than once: a pipe cannot.
fn password_file(options: &Options) -> Option<PathBuf> {
    let path = options.path("password_file").filter(|path| path.is_file())?;
    Some(path.to_owned())
}

fn tls(url: &StoreUrl, options: &Options) -> Result<Option<Tls>, BackendError> {
    let path = |name| options.path(name).map(std::path::Path::to_owned);
    let given = ["ca", "cert", "key"].map(path);
    if url.scheme() != "rediss" {
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
