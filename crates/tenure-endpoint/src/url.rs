//! A parsed store URL: its parts, and how it is shown.

use std::fmt;
use std::path::Path;

use crate::error::UrlError;
use crate::host::Host;
use crate::options::{Known, Options};
use crate::parse;
use crate::secret::Secret;

/// The option that names the file with the password.
pub(crate) const PASSWORD_FILE: &str = "password_file";

/// Names a store, its credentials and its options, as one line of text.
///
/// Two forms exist. A store on the network is `scheme://[user[:password]@]host[:port][,host…][/path][?options]`;
/// a store in a file or in memory (`sqlite`, `memory`) is `scheme:path[?options]`, or `scheme:///path` for an
/// absolute path. User, password, host, path and the values of options are percent-decoded.
///
/// `Display` and `Debug` show the URL as it was written, but for the password, which is left out whole: the text
/// parses again, to the same store without its password. A user without a password is shown as `***`, unless there is
/// a `password_file`: it may be a password whose colon was forgotten. The value of an option that no store takes is shown
/// as `***`, too. To keep that promise when a password was not encoded, exactly one `@` may stand in a URL with hosts, and
/// options whose names sound like a credential are refused.
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
/// # Ok::<(), tenure_endpoint::UrlError>(())
/// ```
#[derive(Clone)]
pub struct StoreUrl {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) path: String,
    pub(crate) pairs: Vec<(String, String)>,
    /// The text as written, without the password, and without a user or an option's value that may be one.
    pub(crate) shown: String,
}

impl StoreUrl {
    /// Reads a store URL of at most 8 KiB.
    ///
    /// # Errors
    ///
    /// [`UrlError`] names the part that is wrong and what to write instead, and never repeats the password.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        parse::parse(text)
    }

    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, unless it is absent or empty.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, unless it is absent or empty.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Whether the value of an option of that name is shown: that of one that no store takes is not, for a password may
    /// stand there.
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
        crate::shown::is_shown(name)
    }

    /// The file that holds the password, if an option names one. Whether the store takes that option is not looked at.
    #[must_use]
    pub fn password_file(&self) -> Option<&Path> {
        let named = self.pairs.iter().find(|(name, _)| name == PASSWORD_FILE)?;
        Some(Path::new(&named.1)).filter(|path| !path.as_os_str().is_empty())
    }

    /// The servers in the order written: at least one for a store on the network, none for a file or memory.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What follows the hosts without its leading `/` (a database, a base, a prefix), or the path of a file.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Checks the query against the options that the store knows, and gives it out by type.
    ///
    /// # Errors
    ///
    /// [`UrlError`] for the first option that is unknown or whose value does not fit its type.
    pub fn options(&self, known: &[Known]) -> Result<Options, UrlError> {
        Options::check(&self.pairs, known)
    }
}

/// Writes the URL as it was given, without its password, and without a user or an option's value that may be one.
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
