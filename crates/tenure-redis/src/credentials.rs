//! Credentials: those that the configuration names, and those that the program fetches at each connect, such as
//! short-lived tokens and secrets from a vault.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use redis::RedisConnectionInfo;
use tenure_backend::BackendError;
use tenure_endpoint::{Secret, read_password_file};

use crate::error::{invalid, no_password};

/// The user and password that the configuration names, for servers or for sentinels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    /// The ACL user. Without one, the password is that of the default user.
    pub(crate) user: Option<String>,
    /// The password, if the server asks for one. With a `user` but no password, the client logs in with an empty one.
    pub(crate) password: Option<Secret>,
    /// The file that holds the password, read again at each connect. A file replaces `password`.
    pub(crate) password_file: Option<PathBuf>,
}

impl Login {
    /// Reads the password file, if there is one, to refuse a bad one early.
    pub(crate) fn new(
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
            let read = read_password_file(path).map_err(invalid)?;
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
        })
    }

    /// The user and password to log in with. Reads the password file again, because the password may have been rotated.
    pub(crate) fn info(&self) -> Result<RedisConnectionInfo, BackendError> {
        let file = self.password_file.as_deref().map(read_password_file).transpose();
        let file = file.map_err(|error| no_password(&error))?;
        let password = file.map(|file| file.password).or_else(|| self.password.clone());
        let mut info = RedisConnectionInfo::default().set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        Ok(match password {
            Some(password) => info.set_password(password.expose()),
            // An empty password makes the client log in. Otherwise it would act as the default user.
            None if self.user.is_some() => info.set_password(""),
            None => info,
        })
    }
}

/// A user and a password, as a callback of [`Config::credentials`](crate::Config::credentials) returns them.
///
/// # Examples
/// See [`Config::credentials`](crate::Config::credentials).
#[derive(Clone, Debug)]
pub struct Credentials(pub(crate) Login);

impl Credentials {
    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Credentials(Login {
            password: Some(Secret::new(password)),
            ..Login::default()
        })
    }

    /// The password of an ACL user.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        let mut credentials = Credentials::password(password);
        credentials.0.user = Some(user.into());
        credentials
    }
}

type Fetching = Pin<Box<dyn Future<Output = Result<Credentials, BackendError>> + Send>>;

/// The callback that fetches credentials.
#[derive(Clone)]
pub(crate) struct CredentialsSource(Arc<dyn Fn() -> Fetching + Send + Sync>);

impl CredentialsSource {
    pub(crate) fn new<F>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BackendError>> + Send + 'static,
    {
        CredentialsSource(Arc::new(move || Box::pin(fetch())))
    }

    pub(crate) async fn fetch(&self) -> Result<Credentials, BackendError> {
        (self.0)().await
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsSource(..)")
    }
}
