//! Connecting: tries each host in turn until one accepts the login and writes.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::{Credentials, Host, addresses};
use tokio::time::timeout;

use super::config::{Config, Place};
use super::error::{invalid, not_connected};

/// Opens connections to one kind of database.
pub(crate) trait Dial: Send + Sync + 'static {
    type Session: Session;

    fn config(&self) -> &Config;

    /// Connects to a host. Fails if it accepts no writes.
    fn host(&self, host: &Host) -> impl Future<Output = Result<Self::Session, BackendError>> + Send;

    /// Connects to a Unix socket. Fails if its server accepts no writes.
    fn socket(
        &self,
        path: &Path,
        port: u16,
    ) -> impl Future<Output = Result<Self::Session, BackendError>> + Send;
}

/// A connection.
pub(crate) trait Session: Send + 'static {
    /// Returns whether the server or the network has closed the connection, as far as is known without a request.
    fn is_closed(&self) -> bool;
}

/// Connects to the place that the settings name. `first` is the index of the host that answered last: it is tried first.
pub(super) async fn dial<D: Dial>(dialer: &D, first: &AtomicUsize) -> Result<D::Session, BackendError> {
    let config = dialer.config();
    let hosts = match &config.place {
        Place::Socket(path, port) => return dialer.socket(path, *port).await,
        Place::Hosts(hosts) => hosts,
    };
    // A silent host must leave time for the others.
    let limit = config.connect_timeout / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let last = first.load(Ordering::Relaxed);
    let mut failed: Option<BackendError> = None;
    for index in (last..hosts.len()).chain(0..last) {
        let host = &hosts[index];
        let opened = timeout(limit, dialer.host(host)).await;
        match opened.unwrap_or_else(|_| Err(not_connected(&host.to_string(), limit))) {
            Ok(session) => {
                first.store(index, Ordering::Relaxed);
                return Ok(session);
            }
            // A wrong password would be refused everywhere, and repeating it may lock the user out.
            Err(error) if error.fault() == Fault::Denied => return Err(error),
            // If one host may answer later, the failure is transient, whatever the others say.
            Err(error) if error.is_transient() => failed = Some(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| invalid("the URL names no host")))
}

/// Looks up the addresses of a host.
pub(crate) async fn look_up(host: &Host) -> Result<Vec<SocketAddr>, BackendError> {
    let found = addresses(host).await;
    found.map_err(|error| {
        let name = host.name();
        let message = format!("the host {name} is not known: correct the URL, or see the name server");
        BackendError::because(Fault::Store, Effect::None, message, error.to_string())
    })
}

/// The user to log in as: by default that of the operating system, as the databases' own clients do.
pub(crate) fn user(config: &Config, credentials: &Credentials) -> Result<String, BackendError> {
    let own_name = || {
        ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
    };
    let user = credentials.user_name().map(str::to_owned).or_else(own_name);
    user.filter(|user| !user.is_empty()).ok_or_else(|| {
        let scheme = config.database.names().scheme;
        invalid(format!(
            "the URL names no user: write `{scheme}://USER:PASSWORD@HOST/DATABASE`"
        ))
    })
}
