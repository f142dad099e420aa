//! Settings: the servers, credentials, timeouts and TLS.

use std::future::Future;
use std::time::Duration;

use tenure_backend::BackendError;
use tenure_endpoint::{Credentials, Host, Known, Login, Secret, StoreUrl, Tls};

use crate::client::Acl;
use crate::error::{colon_in_user, invalid};

const OPTIONS: &[Known] = &[
    Known::one_of("layout", &["curator", "kazoo", "ephemeral"]),
    Known::one_of("acl", &["open", "creator"]),
    Known::limit("tick_time"),
    Known::limit("connect_timeout"),
    Known::limit("command_timeout"),
    Known::path("password_file"),
    Tls::OPTIONS[0],
    Tls::OPTIONS[1],
    Tls::OPTIONS[2],
];

/// The port at which ZooKeeper serves clients by default.
const PORT: u16 = 2181;

/// Servers, credentials, timeouts and TLS settings of a ZooKeeper ensemble.
///
/// # Examples
/// ```
/// use tenure_zookeeper::{Config, StoreUrl};
///
/// let config = Config::from_url(&StoreUrl::parse("zookeeper://ada:s3cr3t@a.example,b.example/locks")?)?;
/// assert_eq!(config.address(), "a.example:2181,b.example:2181");
/// assert_eq!(config.path(), "locks");
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A field is described by the method or the option of the URL that sets it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) hosts: Vec<Host>,
    pub(crate) login: Login,
    pub(crate) path: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) layout: Layout,
    pub(crate) acl: Acl,
    pub(crate) tick_time: Duration,
}

/// How locks are kept as nodes.
///
/// # Examples
/// ```
/// use tenure_zookeeper::{Config, Layout, StoreUrl};
///
/// let config = Config::from_url(&StoreUrl::parse("zookeeper://zk.example?layout=kazoo")?)?;
/// assert_eq!(config.layout(), Layout::Kazoo);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Curator's: mutexes, read-write locks and semaphores, first come, first served.
    #[default]
    Curator,
    /// Kazoo's: mutexes and read-write locks, first come, first served.
    Kazoo,
    /// The textbook's: one ephemeral node for each mutex, in no order.
    Ephemeral,
}

impl Config {
    /// Parses `zookeeper://[user[:password]@]host[:port][,host…][/path][?options]`, or the same with `zookeepers` for TLS. The
    /// crate's page lists the [options](crate#options-of-the-url).
    ///
    /// Reads a password file at once, to refuse a bad one early, and again at each connect. Refuses a user without a
    /// password, because the user may be a misplaced password, as in `zookeeper://PASSWORD@HOST`.
    ///
    /// # Errors
    /// [`Fault::Invalid`](tenure_backend::Fault::Invalid) for an unknown or malformed option, a missing password, or a password file that cannot be read.
    /// No message contains the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let options = url.options(OPTIONS).map_err(invalid)?;
        let login = Login::of_named_user(url, &options)?;
        if url.user().is_some_and(|user| user.contains(':')) {
            return Err(colon_in_user());
        }
        let hosts = url.hosts().iter().cloned();
        let duration = |name, default| options.duration(name).unwrap_or(Duration::from_secs(default));
        Ok(Config {
            hosts: hosts.map(|host| host.with_default_port(PORT)).collect(),
            login,
            path: url.path().trim_end_matches('/').to_owned(),
            connect_timeout: duration("connect_timeout", 5),
            command_timeout: duration("command_timeout", 3),
            tls: Tls::from_options(&options, "zookeepers", url.scheme() == "zookeepers")?,
            layout: match options.one_of("layout") {
                Some("kazoo") => Layout::Kazoo,
                Some("ephemeral") => Layout::Ephemeral,
                _ => Layout::Curator,
            },
            acl: match options.one_of("acl") {
                Some("creator") => Acl::Creator,
                _ => Acl::Open,
            },
            tick_time: duration("tick_time", 2),
        })
    }

    /// Sets the password, such as one that does not come from the URL.
    #[must_use]
    pub fn password(mut self, password: Secret) -> Self {
        self.login = self.login.with_password(password);
        self
    }

    /// Sets a callback that fetches user and password at each connect, instead of fixed ones.
    ///
    /// A connect waits for the callback, within its time limit. If the callback fails, the client tries the next host, and
    /// calls it again.
    ///
    /// # Examples
    /// ```
    /// use tenure_zookeeper::{Config, Credentials, StoreUrl};
    ///
    /// let config = Config::from_url(&StoreUrl::parse("zookeeper://zk.example")?)?.credentials(async || {
    ///     // Ask the vault here.
    ///     Ok(Credentials::user("ada", "s3cr3t"))
    /// });
    /// assert!(!format!("{config:?}").contains("s3cr3t"));
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

    /// The servers as `host:port`, separated by commas.
    pub fn address(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        hosts.join(",")
    }

    /// How locks are kept.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The path of the node that all locks are below, without slashes at its ends; empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use tenure_backend::Fault;

    use super::*;

    fn config(url: &str) -> Result<Config, BackendError> {
        Config::from_url(&StoreUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn a_url_says_where_who_and_for_how_long() {
        let read =
            config("zookeeper://ada:s3cr3t@a:1,[::1]/locks/of/ada?connect_timeout=1s&command_timeout=250ms");
        let read = read.expect("it makes sense");
        assert_eq!(
            (read.address().as_str(), read.path()),
            ("a:1,[::1]:2181", "locks/of/ada")
        );
        assert_eq!(read.login.user(), Some("ada"));
        assert_eq!(
            (read.connect_timeout, read.command_timeout),
            (Duration::from_secs(1), Duration::from_millis(250))
        );
        let slash = config("zookeeper://a/locks/").expect("it makes sense");
        assert_eq!(slash.path(), "locks");
        let usual = config("zookeepers://a?ca=/ca.pem").expect("it makes sense");
        assert_eq!(
            (usual.connect_timeout, usual.command_timeout),
            (Duration::from_secs(5), Duration::from_secs(3))
        );
        assert_eq!(usual.tls.expect("TLS").ca, Some("/ca.pem".into()));
    }

    #[test]
    fn a_url_that_contradicts_itself_is_refused() {
        for (url, words) in [
            ("zookeeper://s3cr3t@a", "a user and no password"),
            ("zookeeper://ada%3Ab:s3cr3t@a", "contains a colon"),
            ("zookeeper://:s3cr3t@a", "a password and no user"),
            ("zookeeper://a?ca=/ca.pem", "write `zookeepers://`"),
            ("zookeepers://a?cert=/cert.pem", "belong together"),
            ("zookeeper://a?command_timeout=0s", "longer than 0"),
            ("zookeeper://a?lease=3s", "no option `lease`"),
        ] {
            let refused = config(url).expect_err(url);
            let text = format!("{refused} {refused:?}");
            assert_eq!(refused.fault(), Fault::Invalid, "{url}");
            assert!(text.contains(words) && !text.contains("s3cr3t"), "{url}: {text}");
        }
    }
}
