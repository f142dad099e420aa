//! Credentials that the program fetches at each connect: short-lived tokens, secrets from a vault.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tenure_backend::BackendError;
use tenure_endpoint::Secret;

/// A user and a password, as a callback of [`Config::credentials`](crate::Config::credentials) returns them.
///
/// # Examples
/// See [`Config::credentials`](crate::Config::credentials).
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Secret,
}

impl Credentials {
    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Credentials {
            user: None,
            password: Secret::new(password),
        }
    }

    /// The password of an ACL user.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        Credentials {
            user: Some(user.into()),
            password: Secret::new(password),
        }
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
