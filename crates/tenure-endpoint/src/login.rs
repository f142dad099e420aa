//! How a client logs in: with the user and password of its settings, or with those that the program fetches at each
//! connect, such as short-lived tokens and secrets from a vault.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use tenure_backend::{BackendError, Effect, Fault};

use crate::error::{invalid, with_causes};
use crate::options::Options;
use crate::password_file::{PasswordFileError, read_password_file};
use crate::secret::Secret;
use crate::url::StoreUrl;

/// A user and a password, as a program's callback returns them.
///
/// # Examples
/// ```
/// use tenure_endpoint::Credentials;
///
/// let credentials = Credentials::user("ada", "s3cr3t");
/// assert_eq!(credentials.user_name(), Some("ada"));
/// assert!(!format!("{credentials:?}").contains("s3cr3t"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    user: Option<String>,
    password: Option<Secret>,
}

impl Credentials {
    /// A password without a user: that of the store's default user, or of the user in the URL.
    pub fn password(password: impl Into<String>) -> Self {
        Credentials {
            user: None,
            password: Some(Secret::new(password)),
        }
    }

    /// A user and its password.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        Credentials {
            user: Some(user.into()),
            ..Credentials::password(password)
        }
    }

    /// The user's name, if there is one.
    #[must_use]
    pub fn user_name(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if there is one.
    #[must_use]
    pub fn secret(&self) -> Option<&Secret> {
        self.password.as_ref()
    }
}

/// Where a client takes its user and password from.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure_backend::BackendError> {
/// use tenure_endpoint::{Credentials, Login};
///
/// let login = Login::default().with_user("ada");
/// // A token that expires is fetched at each connect. It belongs to the user that was named before.
/// let login = login.fetching(async || Ok(Credentials::password("from the vault")));
/// assert_eq!(login.credentials().await?.user_name(), Some("ada"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Login {
    user: Option<String>,
    password: Option<Secret>,
    /// Read again at each connect. Replaces `password`.
    password_file: Option<PathBuf>,
    /// Replaces the password, and the user if it names one.
    source: Option<Source>,
}

impl Login {
    /// Takes the user and password of a URL. Reads the password file, if there is one, to refuse a bad one early.
    ///
    /// # Errors
    /// `Invalid` if the password is given twice, or its file cannot be read.
    pub fn new(
        user: Option<&str>,
        password: Option<&Secret>,
        file: Option<&Path>,
    ) -> Result<Self, BackendError> {
        if password.is_some() && file.is_some() {
            return Err(invalid(
                "the password stands in the URL and in `password_file`: give one of them",
            ));
        }
        let mut password = password.cloned();
        if let Some(path) = file {
            let read = read_password_file(path).map_err(|error| invalid(with_causes(&error)))?;
            if read.readable_by_all {
                tracing::warn!(path = %path.display(), "everyone on this machine can read the password file: chmod 600 it");
            }
            password = Some(read.password);
        }
        Ok(Login {
            user: user.map(str::to_owned),
            password,
            // A pipe can be read only once, which has just been done, so no connect reads it again.
            password_file: file.filter(|path| path.is_file()).map(Path::to_owned),
            source: None,
        })
    }

    /// Takes the user and password of a URL, and its option `password_file`, for a store whose users all have names and
    /// passwords.
    ///
    /// # Errors
    /// As [`new`](Login::new), and `Invalid` for a user without a password, which may be a misplaced password, as in
    /// `etcd://PASSWORD@HOST`, and for a password without a user.
    pub fn of_named_user(url: &StoreUrl, options: &Options) -> Result<Self, BackendError> {
        let login = Login::new(url.user(), url.password(), options.path("password_file"))?;
        let scheme = url.scheme();
        if login.lacks_password() {
            // The message does not repeat the user name, because it may be a misplaced password.
            return Err(invalid(format!(
                "the URL names a user and no password: write `{scheme}://USER:PASSWORD@HOST`, or name a file with `password_file`"
            )));
        }
        if login.user.is_none() && login.password.is_some() {
            return Err(invalid(format!(
                "the URL has a password and no user: write `{scheme}://USER:PASSWORD@HOST`, or only the user there and the \
                 password in `password_file`"
            )));
        }
        Ok(login)
    }

    /// Sets the user.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password.
    #[must_use]
    pub fn with_password(mut self, password: Secret) -> Self {
        self.password = Some(password);
        self
    }

    /// Sets the file that holds the password, which is read at each connect.
    #[must_use]
    pub fn with_password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.password_file = Some(file.into());
        self
    }

    /// Sets a callback that is called at each connect, instead of a fixed password.
    #[must_use]
    pub fn fetching<F>(mut self, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BackendError>> + Send + 'static,
    {
        self.source = Some(Source(Arc::new(move || Box::pin(fetch()))));
        self
    }

    /// The user that the settings name.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns whether the settings name no user, no password and no callback.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.user.is_none() && self.password.is_none() && self.source.is_none()
    }

    /// Returns whether a user is named without a password, a password file or a callback.
    #[must_use]
    pub fn lacks_password(&self) -> bool {
        self.user.is_some() && self.password.is_none() && self.source.is_none()
    }

    /// The user and password for one connect: calls the callback, or reads the password file again, because both may
    /// have been rotated.
    ///
    /// # Cancel safety
    /// Dropping the future drops that of the callback.
    ///
    /// # Errors
    /// The callback's error. `Unavailable` if the password file cannot be read, because a program that rotates it may be
    /// writing it now.
    pub async fn credentials(&self) -> Result<Credentials, BackendError> {
        let mut credentials = match &self.source {
            Some(Source(fetch)) => fetch().await?,
            None => Credentials {
                user: None,
                password: self.current_password()?,
            },
        };
        credentials.user = credentials.user.or_else(|| self.user.clone());
        Ok(credentials)
    }

    fn current_password(&self) -> Result<Option<Secret>, BackendError> {
        match &self.password_file {
            Some(path) => {
                let file = read_password_file(path).map_err(|error| unread(&error))?;
                Ok(Some(file.password))
            }
            None => Ok(self.password.clone()),
        }
    }
}

type Fetching = Pin<Box<dyn Future<Output = Result<Credentials, BackendError>> + Send>>;

/// The callback that fetches credentials.
#[derive(Clone)]
struct Source(Arc<dyn Fn() -> Fetching + Send + Sync>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}

fn unread(error: &PasswordFileError) -> BackendError {
    let message = format!("{error}; it is read again at the next try");
    let cause = std::error::Error::source(error).map(ToString::to_string);
    BackendError::because(
        Fault::Unavailable,
        Effect::None,
        message,
        cause.unwrap_or_default(),
    )
}
