//! Settings of a store on a database server: where it is, how to log in, and where the locks are.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, SystemClock};
use tenure_endpoint::{Credentials, Host, Known, Login, Options, Secret, StoreUrl, Tls};

use super::error::invalid;
use crate::lease_rows::layout::Layout;

/// Options that both kinds of database have.
const COMMON: [Known; 15] = [
    Known::one_of("layout", &["unique", "version", "shedlock"]),
    Known::text("table"),
    Known::text("schema"),
    Known::text("connections"),
    Known::text("time_zone"),
    Known::text("host"),
    Known::text("application_name"),
    Known::limit("connect_timeout"),
    Known::limit("command_timeout"),
    Known::limit("sweep_after"),
    Known::path("password_file"),
    Tls::OPTIONS[0],
    Tls::OPTIONS[1],
    Tls::OPTIONS[2],
    Known::one_of("target_session_attrs", &["read-write", "primary", "any"]),
];

/// The database server that keeps the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres,
    MySql,
}

/// How a kind of database, and its own client, name things.
pub(crate) struct Names {
    /// In URLs, in profiles, and as the feature of this crate.
    pub(crate) scheme: &'static str,
    port: u16,
    /// The function that reads the server's clock.
    clock: &'static str,
    /// The zone of the times in a table, unless the URL names another.
    time_zone: &'static str,
    tls_option: &'static str,
    /// The values of that option, in the order of [`TlsMode::ALL`].
    tls_modes: &'static [&'static str; 5],
}

impl Database {
    pub(crate) fn names(self) -> &'static Names {
        match self {
            Database::Postgres => &Names {
                scheme: "postgres",
                port: 5432,
                clock: "clock_timestamp()",
                time_zone: "UTC",
                tls_option: "sslmode",
                tls_modes: &["disable", "prefer", "require", "verify-ca", "verify-full"],
            },
            Database::MySql => &Names {
                scheme: "mysql",
                port: 3306,
                clock: "SYSDATE(6)",
                time_zone: "+00:00",
                tls_option: "ssl-mode",
                tls_modes: &[
                    "disabled",
                    "preferred",
                    "required",
                    "verify_ca",
                    "verify_identity",
                ],
            },
        }
    }

    /// The option of the URL that sets this mode, such as `sslmode=prefer`.
    pub(crate) fn tls_option(self, mode: TlsMode) -> String {
        let names = self.names();
        format!("{}={}", names.tls_option, names.tls_modes[mode as usize])
    }
}

/// Whether the connection is encrypted, and what is verified of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsMode {
    Disable,
    /// Encrypted if the server offers it.
    Prefer,
    Require,
    /// The certificate must be signed by a trusted authority.
    VerifyCa,
    /// It must also be the certificate of this host.
    VerifyFull,
}

impl TlsMode {
    const ALL: [TlsMode; 5] = {
        use TlsMode::{Disable, Prefer, Require, VerifyCa, VerifyFull};
        [Disable, Prefer, Require, VerifyCa, VerifyFull]
    };
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host(Host),
    /// A Unix socket: on PostgreSQL the folder and the port in the socket's name, on MySQL the socket itself.
    Socket(PathBuf, u16),
}

/// Address, credentials, layout and limits of a store on a database server.
///
/// # Examples
/// ```
/// use tenure_sql::server::{Config, StoreUrl};
///
/// let url = StoreUrl::parse("postgres://ada:s3cr3t@db.example/shop?layout=version")?;
/// let config = Config::from_url(&url)?;
/// assert_eq!(config.address(), "db.example:5432");
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A field is described by the method or the option of the URL that sets it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) database: Database,
    /// Tried in turn until one accepts writes.
    pub(crate) places: Vec<Place>,
    pub(crate) login: Login,
    pub(crate) dbname: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) table: String,
    pub(crate) layout: Layout,
    pub(crate) tls: TlsMode,
    pub(crate) tls_files: Tls,
    pub(crate) application_name: String,
    /// Command-line options for the server process, which PostgreSQL accepts at each connect.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only PostgreSQL has it")
    )]
    pub(crate) options: Option<String>,
    pub(crate) time_zone: String,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) sweep_after: Duration,
    /// An idle connection is closed after this time.
    pub(crate) idle: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// The expression with which statements read the server's clock.
    pub(crate) server_clock: String,
}

impl Config {
    /// Parses `postgres://[user[:password]@]host[:port][,host…]/database?layout=…` or the same with `mysql://` or
    /// `mariadb://`. The module's page lists the [options](crate::server#options-of-the-url).
    ///
    /// Reads a password file at once, to refuse a bad one early, and again at each connect.
    ///
    /// # Errors
    /// [`Fault::Invalid`](tenure_backend::Fault::Invalid) for an unknown or malformed option, a missing layout, or a
    /// password file that cannot be read. No message contains the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let database = match url.scheme() {
            "postgres" | "postgresql" => Database::Postgres,
            _ => Database::MySql,
        };
        let names = database.names();
        let mut known = COMMON.to_vec();
        known.push(Known::one_of(names.tls_option, names.tls_modes));
        if database == Database::Postgres {
            known.push(Known::text("options"));
        }
        let options = url.options(&known).map_err(invalid)?;
        let layout = layout(&options)?;
        let limit = |name, usual| options.duration(name).unwrap_or(Duration::from_secs(usual));
        let config = Config {
            database,
            places: places(url, &options, names.port)?,
            login: Login::new(url.user(), url.password(), options.path("password_file"))?,
            dbname: Some(url.path().to_owned()).filter(|name| !name.is_empty()),
            schema: identifier(&options, "schema")?,
            table: identifier(&options, "table")?.unwrap_or_else(|| layout.form().table.to_owned()),
            layout,
            tls: tls_mode(&options, names),
            tls_files: Tls::from_options(&options, names.scheme, true)?.unwrap_or_default(),
            application_name: options.text("application_name").unwrap_or("tenure").to_owned(),
            options: (database == Database::Postgres)
                .then(|| options.text("options").map(str::to_owned))
                .flatten(),
            time_zone: time_zone(&options)?.unwrap_or(names.time_zone).to_owned(),
            connections: connections(&options)?,
            connect_timeout: limit("connect_timeout", 5),
            command_timeout: limit("command_timeout", 3),
            sweep_after: limit("sweep_after", 600),
            idle: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
            server_clock: names.clock.to_owned(),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), BackendError> {
        if self.database == Database::MySql && self.dbname.is_none() && self.schema.is_none() {
            return Err(invalid(
                "the URL names no database: write `mysql://HOST/DATABASE`",
            ));
        }
        if self.tls < TlsMode::Require && (self.tls_files.ca.is_some() || self.tls_files.identity.is_some()) {
            return Err(invalid(format!(
                "`ca`, `cert` and `key` are for TLS: add `{}`, or at least `{}`",
                self.database.tls_option(TlsMode::VerifyFull),
                self.database.tls_option(TlsMode::Require)
            )));
        }
        Ok(())
    }

    /// Sets the password, such as one that does not come from the URL.
    #[must_use]
    pub fn password(mut self, password: Secret) -> Self {
        self.login = self.login.with_password(password);
        self
    }

    /// Sets a callback that fetches user and password at each connect, instead of fixed ones: for tokens that expire, as
    /// the databases of cloud providers accept them.
    ///
    /// Connecting waits for the callback, within `connect_timeout`. If the callback fails, connecting fails with its error,
    /// and the next attempt calls it again.
    ///
    /// # Examples
    /// ```
    /// use tenure_sql::server::{Config, Credentials, StoreUrl};
    ///
    /// let url = StoreUrl::parse("postgres://ada@db.example/shop?layout=version")?;
    /// let config = Config::from_url(&url)?.credentials(async || {
    ///     // Ask the cloud provider here.
    ///     Ok(Credentials::password("a token for 15 minutes"))
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn credentials<F>(mut self, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BackendError>> + Send + 'static,
    {
        self.login = self.login.fetching(fetch);
        self
    }

    /// Sets the clock that measures leases: the system's by default.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Config { clock, ..self }
    }

    /// Sets the expression with which statements read the server's clock, so that a test can move it.
    #[cfg(feature = "__own-tests")]
    #[doc(hidden)]
    #[must_use]
    pub fn server_clock(self, expression: &str) -> Self {
        let server_clock = expression.to_owned();
        Config { server_clock, ..self }
    }

    /// Sets after what time an idle connection is closed: 10 s by default.
    #[cfg(feature = "__own-tests")]
    #[doc(hidden)]
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Config { idle, ..self }
    }

    /// The servers as `host:port`, or the path of the socket.
    pub fn address(&self) -> String {
        let places: Vec<String> = self.places.iter().map(Place::to_string).collect();
        places.join(",")
    }

    /// The table with its schema, as statements name it. Both are identifiers of letters, digits and `_`.
    pub(crate) fn table_name(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.table),
            None => self.table.clone(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(host) => host.fmt(f),
            Place::Socket(path, _) => path.display().fmt(f),
        }
    }
}

fn layout(options: &Options) -> Result<Layout, BackendError> {
    let named = options.one_of("layout");
    let layout = Layout::ALL
        .into_iter()
        .find(|layout| Some(layout.form().name) == named);
    layout.ok_or_else(|| {
        invalid(
            "the URL names no layout: add `?layout=version` (a table of locks with fencing tokens), `?layout=unique` \
             (insert and delete, without tokens), or `?layout=shedlock` (the table of Java's ShedLock)",
        )
    })
}

fn places(url: &StoreUrl, options: &Options, port: u16) -> Result<Vec<Place>, BackendError> {
    let Some(path) = options.text("host") else {
        let hosts = url.hosts().iter().cloned();
        return Ok(hosts
            .map(|host| Place::Host(host.with_default_port(port)))
            .collect());
    };
    if !path.starts_with('/') {
        return Err(invalid(
            "`host` is a Unix socket, or the folder of PostgreSQL's socket, and begins with `/`: write a host's name before \
             the database, `://HOST/DATABASE`",
        ));
    }
    let port = url.hosts().first().map_or(port, |host| host.port_or(port));
    Ok(vec![Place::Socket(path.into(), port)])
}

fn tls_mode(options: &Options, names: &Names) -> TlsMode {
    let given = options.one_of(names.tls_option);
    let mut modes = TlsMode::ALL.into_iter().zip(names.tls_modes);
    let mode = modes.find(|(_, word)| Some(**word) == given);
    mode.map_or(TlsMode::Prefer, |(mode, _)| mode)
}

/// Reads the name of a table or schema. It is written into statements, so it may contain only letters, digits and `_`.
fn identifier(options: &Options, name: &str) -> Result<Option<String>, BackendError> {
    let Some(text) = options.text(name) else {
        return Ok(None);
    };
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_plain || text.starts_with(|first: char| first.is_ascii_digit()) || text.len() > 63 {
        return Err(invalid(format!(
            "`{name}` is not an identifier: write at most 63 letters, digits and `_`, not beginning with a digit"
        )));
    }
    Ok(Some(text.to_owned()))
}

/// Reads a time zone: an offset, or a name. Some programs count names such as `GMT+2` eastwards and others westwards.
fn time_zone(options: &Options) -> Result<Option<&str>, BackendError> {
    let Some(text) = options.text("time_zone") else {
        return Ok(None);
    };
    let is_number = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let offset = text
        .strip_prefix(['+', '-'])
        .and_then(|rest| rest.split_once(':'));
    let is_offset = offset.is_some_and(|(hours, minutes)| is_number(hours) && is_number(minutes));
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_".contains(&byte);
    let begins_with_digit = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(is_allowed)
        && !text.split('-').any(begins_with_digit);
    match is_offset || is_name {
        true => Ok(Some(text)),
        false => Err(invalid(
            "`time_zone` is not a time zone: write an offset such as `+02:00`, or a name such as `UTC` or `Europe/Berlin`",
        )),
    }
}

fn connections(options: &Options) -> Result<usize, BackendError> {
    match options.text("connections").map(str::parse) {
        None => Ok(4),
        Some(Ok(count @ 1..=100)) => Ok(count),
        Some(_) => Err(invalid("`connections` is a number from 1 to 100")),
    }
}
