//! A parsed store URL, whose text form has no credentials.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::error::InvalidUrl;
use crate::host::Host;
use crate::options::{Known, Options};
use crate::password_file::PASSWORD_FILE;
use crate::secret::Secret;

/// A parsed URL that names a store, its credentials and its options.
///
/// There are two forms. A store on the network is `scheme://[user[:password]@]host[:port][,host…][/path][?options]`;
/// a store in a file or in memory (`sqlite`, `memory`) is `scheme:path[?options]`, or `scheme:///path` for an
/// absolute path. User, password, host, path and the values of options are percent-decoded.
///
/// `Display` and `Debug` show the URL as it was written, without the password and with the scheme in lower case. The
/// shown text is again a valid URL of the same store. Two more parts are shown as `***`, because they may be misplaced
/// passwords: a user name without password, unless the URL has a `password_file`, and the value of an option that no
/// store has. For the same reason a URL with hosts may contain only one `@`, and options with names like `password` or
/// `token` are refused.
///
/// # Examples
///
/// ```
/// let url = tenure_endpoint::StoreUrl::parse("redis://ada:s3cr3t@cache.example:6380/0")?;
/// assert_eq!(url.hosts()[0].port(), Some(6380));
/// assert_eq!(url.path(), "0");
/// assert_eq!(url.to_string(), "redis://ada@cache.example:6380/0");
/// let forgotten = tenure_endpoint::StoreUrl::parse("redis://s3cr3t@cache.example")?;
/// assert_eq!(forgotten.to_string(), "redis://***@cache.example");
/// # Ok::<(), tenure_endpoint::InvalidUrl>(())
/// ```
#[derive(Clone)]
pub struct StoreUrl {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) path: String,
    pub(crate) pairs: Vec<(String, String)>,
    /// The URL as it was written, without the password, and with `***` for parts that may be a password.
    pub(crate) shown: String,
    /// The place of the hosts in `shown`; empty for a store without hosts.
    pub(crate) shown_hosts: Range<usize>,
}

impl StoreUrl {
    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user name; `None` if it is absent or empty.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password; `None` if it is absent or empty.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Returns whether `Display` shows the value of the option `name`.
    ///
    /// Values of options that no store has are masked, because such an option may be a misspelled credential.
    ///
    /// # Examples
    /// ```
    /// use tenure_endpoint::StoreUrl;
    ///
    /// assert!(StoreUrl::shows_option("connect_timeout"));
    /// assert!(!StoreUrl::shows_option("auth"));
    /// ```
    #[must_use]
    pub fn shows_option(name: &str) -> bool {
        crate::redaction::is_shown(name)
    }

    /// The value of the option `password_file`; `None` if it is absent or empty. Does not check that the store has this
    /// option.
    #[must_use]
    pub fn password_file(&self) -> Option<&Path> {
        let option = self.pairs.iter().find(|(name, _)| name == PASSWORD_FILE)?;
        Some(Path::new(&option.1)).filter(|path| !path.as_os_str().is_empty())
    }

    /// The servers, in the order of the URL. At least one for a store on the network, none for a file or memory.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One URL for each host, in their order, with the given scheme and this URL's credentials, path and options.
    ///
    /// For a store that treats each of its hosts as a server of its own. Returns nothing for a store without hosts.
    ///
    /// # Examples
    /// ```
    /// let url = tenure_endpoint::StoreUrl::parse("redlock://ada:s3cr3t@a:1,b:2/3?layout=plain")?;
    /// let members: Vec<_> = url.members("redis").iter().map(ToString::to_string).collect();
    /// assert_eq!(members, ["redis://ada@a:1/3?layout=plain", "redis://ada@b:2/3?layout=plain"]);
    /// # Ok::<(), tenure_endpoint::InvalidUrl>(())
    /// ```
    #[must_use]
    pub fn members(&self, scheme: &str) -> Vec<StoreUrl> {
        let Range { start, end } = self.shown_hosts;
        let credentials = self.shown.get(self.scheme.len()..start).unwrap_or_default();
        let written = self.shown[start..end].split(',');
        let member = |(host, text): (&Host, &str)| {
            let before = format!("{scheme}{credentials}");
            StoreUrl {
                scheme: scheme.to_owned(),
                hosts: vec![host.clone()],
                shown_hosts: before.len()..before.len() + text.len(),
                shown: format!("{before}{text}{}", &self.shown[end..]),
                ..self.clone()
            }
        };
        self.hosts.iter().zip(written).map(member).collect()
    }

    /// The path after the hosts, without its leading `/`; for a store in a file, the path of the file.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes the options in `known` from the URL: returns their values, and the URL with the others.
    ///
    /// For a store made of several stores: it takes its own options, and passes the others on to those stores.
    /// `Display` of the returned URL still shows all options.
    ///
    /// # Errors
    ///
    /// [`InvalidUrl`] for the first value that does not fit its type: correct the URL.
    pub fn split_options(&self, known: &[Known]) -> Result<(Options, StoreUrl), InvalidUrl> {
        let is_known = |(name, _): &(String, String)| known.iter().any(|option| option.is_named(name));
        let (taken, pairs): (Vec<_>, Vec<_>) = self.pairs.iter().cloned().partition(is_known);
        let rest = StoreUrl {
            pairs,
            ..self.clone()
        };
        Ok((Options::check(&taken, known)?, rest))
    }

    /// Checks the options of the URL against those that the store knows, and parses their values.
    ///
    /// # Errors
    ///
    /// [`InvalidUrl`] for the first option that is unknown or whose value does not fit its type: correct the URL.
    pub fn options(&self, known: &[Known]) -> Result<Options, InvalidUrl> {
        Options::check(&self.pairs, known)
    }
}

/// Writes the URL as it was given, without the password, and with `***` for parts that may be a password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreUrl").field(&self.shown).finish()
    }
}
