//! Looks host names up. tokio would do so on a thread of its pool, and panics if the system starts no further thread.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;

use tenure_backend::{BackendError, Effect, Fault};
use tokio::sync::oneshot;

use crate::host::Host;

/// Returns the addresses of a host. A name is looked up on a thread of its own, because the system's function blocks.
///
/// # Cancel safety
/// Dropping the future leaves the thread, which ends with the look-up.
///
/// # Errors
/// The system's error, also if it starts no further thread.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use tenure_endpoint::{Host, addresses};
///
/// assert_eq!(addresses(&Host::new("::1", 6379)).await?.len(), 1);
/// # Ok(()) }
/// ```
pub async fn addresses(host: &Host) -> io::Result<Vec<SocketAddr>> {
    let (name, port) = (host.name().to_owned(), host.port_or(0));
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (tell, told) = oneshot::channel();
    let look_up = move || {
        let found = (name.as_str(), port).to_socket_addrs();
        // Fails if the caller has given up.
        let _ = tell.send(found.map(Iterator::collect));
    };
    let thread = thread::Builder::new().name("tenure-lookup".to_owned());
    thread
        .spawn(look_up)
        .map_err(|error| io::Error::other(format!("no thread can be started to look {host} up: {error}")))?;
    told.await
        .unwrap_or_else(|_| Err(io::Error::other("the look-up has ended without an answer")))
}

/// Returns the addresses of a host, as [`addresses`] does.
///
/// # Cancel safety
/// As [`addresses`].
///
/// # Errors
/// `Store`. The message names the host, and says what to correct.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use tenure_endpoint::{Host, look_up};
///
/// let unknown = look_up(&Host::new("nowhere.invalid", 6379)).await.unwrap_err();
/// assert!(unknown.to_string().starts_with("the host nowhere.invalid is not known"));
/// # }
/// ```
pub async fn look_up(host: &Host) -> Result<Vec<SocketAddr>, BackendError> {
    addresses(host).await.map_err(|error| {
        let name = host.name();
        let message = format!("the host {name} is not known: correct the URL, or see the name server");
        BackendError::because(Fault::Store, Effect::None, message, error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_addresses_are_found() {
        for (name, port) in [("localhost", 7), ("127.0.0.1", 8), ("::1", 9)] {
            let host = Host::new(name, port);
            let found = addresses(&host).await.expect("it is known");
            assert!(!found.is_empty());
            assert!(
                found
                    .iter()
                    .all(|one| one.ip().is_loopback() && one.port() == port),
                "{found:?}"
            );
        }
    }
}
