//! Settings: the cluster's members, credentials, timeouts and TLS.

use std::future::Future;
use std::time::Duration;

use tenure_backend::BackendError;
use tenure_endpoint::{Credentials, Host, Known, Login, Secret, StoreUrl, Tls};

use crate::error::invalid;

const OPTIONS: &[Known] = &[
    Known::limit("connect_timeout"),
    Known::limit("command_timeout"),
    Known::path("password_file"),
    Tls::OPTIONS[0],
    Tls::OPTIONS[1],
    Tls::OPTIONS[2],
    Known::one_of("fencing", &["etcdctl"]),
];

/// The port at which etcd serves clients by default.
const PORT: u16 = 2379;

/// Members, credentials, timeouts and TLS settings of an etcd cluster.
///
/// # Examples
/// ```
/// use tenure_etcd::{Config, StoreUrl};
///
/// let config = Config::from_url(&StoreUrl::parse("etcd://ada:s3cr3t@a.example,b.example/locks")?)?;
/// assert_eq!(config.address(), "a.example:2379,b.example:2379");
/// assert_eq!(config.prefix(), "locks");
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A field is described by the method or the option of the URL that sets it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) hosts: Vec<Host>,
    pub(crate) login: Login,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) etcdctl_fencing: bool,
}

impl Config {
    /// Parses `etcd://[user[:password]@]host[:port][,host…][/prefix][?options]`, or the same with `etcds` for TLS. The
    /// crate's page lists the [options](crate#options-of-the-url).
    ///
    /// Reads a password file at once, to refuse a bad one early, and again at each login. Refuses a user without a
    /// password, because the user may be a misplaced password, as in `etcd://PASSWORD@HOST`.
    ///
    /// # Errors
    /// [`Fault::Invalid`](tenure_backend::Fault::Invalid) for an unknown or malformed option, a missing password, a password file that
    /// cannot be read, or a prefix that ends with a slash or has control characters.
    /// No message contains the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let prefix = url.path();
        if prefix.ends_with('/') {
            return Err(invalid(
                "the prefix in the URL ends with a slash: write it without the slash at its end, because a lock's key adds one",
            ));
        }
        if prefix.contains(char::is_control) {
            return Err(invalid(
                "the prefix in the URL has a control character: leave it out",
            ));
        }
        let options = url.options(OPTIONS).map_err(invalid)?;
        let login = Login::of_named_user(url, &options)?;
        let hosts = url.hosts().iter().cloned();
        Ok(Config {
            hosts: hosts.map(|host| host.with_default_port(PORT)).collect(),
            login,
            prefix: prefix.to_owned(),
            connect_timeout: options
                .duration("connect_timeout")
                .unwrap_or(Duration::from_secs(5)),
            command_timeout: options
                .duration("command_timeout")
                .unwrap_or(Duration::from_secs(3)),
            tls: Tls::from_options(&options, "etcds", url.scheme() == "etcds")?,
            etcdctl_fencing: options.one_of("fencing").is_some(),
        })
    }

    /// Sets the password, such as one that does not come from the URL.
    #[must_use]
    pub fn password(mut self, password: Secret) -> Self {
        self.login = self.login.with_password(password);
        self
    }

    /// Sets a callback that fetches user and password at each login, instead of fixed ones.
    ///
    /// A login waits for the callback, within the timeout of the connect or the request that needs it. If the callback fails,
    /// the login fails with its error, and the next login calls it again.
    ///
    /// # Examples
    /// ```
    /// use tenure_etcd::{Config, Credentials, StoreUrl};
    ///
    /// let config = Config::from_url(&StoreUrl::parse("etcd://etcd.example")?)?.credentials(async || {
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

    /// Makes a grant's token the revision at which the client has found the grant, as etcdctl's `ETCD_LOCK_REV` is. All clients
    /// of a lock must agree. The same as the option `fencing=etcdctl` of the URL.
    #[must_use]
    pub fn etcdctl_fencing(mut self, etcdctl_fencing: bool) -> Self {
        self.etcdctl_fencing = etcdctl_fencing;
        self
    }

    /// These settings for one of the members.
    pub(crate) fn with_host(self, host: &Host) -> Self {
        Config {
            hosts: vec![host.clone()],
            ..self
        }
    }

    /// Whether the client shows etcd neither a user nor a certificate.
    pub(crate) fn is_anonymous(&self) -> bool {
        let has_identity = self.tls.as_ref().is_some_and(|tls| tls.identity.is_some());
        self.login.is_empty() && !has_identity
    }

    /// The members as `host:port`, separated by commas.
    pub fn address(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        hosts.join(",")
    }

    /// The text before the name of each lock; empty for none.
    pub fn prefix(&self) -> &str {
        &self.prefix
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
            config("etcd://ada:s3cr3t@a:1,[::1]/locks/of/ada?connect_timeout=1s&command_timeout=250ms");
        let read = read.expect("it makes sense");
        assert_eq!(
            (read.address().as_str(), read.prefix()),
            ("a:1,[::1]:2379", "locks/of/ada")
        );
        assert_eq!(read.login.user(), Some("ada"));
        assert_eq!(
            (read.connect_timeout, read.command_timeout),
            (Duration::from_secs(1), Duration::from_millis(250))
        );
        assert_eq!(config("etcd://a/").expect("it makes sense").prefix(), "");
        let usual = config("etcds://a?ca=/ca.pem").expect("it makes sense");
        assert_eq!(
            (usual.connect_timeout, usual.command_timeout),
            (Duration::from_secs(5), Duration::from_secs(3))
        );
        assert_eq!(usual.tls.expect("TLS").ca, Some("/ca.pem".into()));
    }

    #[test]
    fn a_url_that_contradicts_itself_is_refused() {
        for (url, words) in [
            ("etcd://s3cr3t@a", "a user and no password"),
            ("etcd://:s3cr3t@a", "a password and no user"),
            ("etcd://a?ca=/ca.pem", "write `etcds://`"),
            ("etcds://a?cert=/cert.pem", "belong together"),
            ("etcd://a?command_timeout=0s", "longer than 0"),
            ("etcd://a?lease=3s", "no option `lease`"),
            ("etcd://a?fencing=redisson", "etcdctl"),
            ("etcd://a/locks/", "write it without the slash at its end"),
            ("etcd://a/locks%01", "control character"),
        ] {
            let refused = config(url).expect_err(url);
            let text = format!("{refused} {refused:?}");
            assert_eq!(refused.fault(), Fault::Invalid, "{url}");
            assert!(text.contains(words) && !text.contains("s3cr3t"), "{url}: {text}");
        }
    }
}
