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

/// What the systems' resolvers say of a name that does not exist. The error has no code of its own.
const UNKNOWN_HOST: [&str; 4] = [
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "nodename nor servname provided",
];

/// Returns whether a name server has answered that it does not know the host. After any other error of [`addresses`],
/// another look-up may succeed.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use tenure_endpoint::{Host, addresses, is_unknown_host};
///
/// let error = addresses(&Host::new("two words", 6379)).await.unwrap_err();
/// assert!(is_unknown_host(&error), "{error}");
/// # }
/// ```
pub fn is_unknown_host(error: &io::Error) -> bool {
    let text = error.to_string();
    UNKNOWN_HOST.iter().any(|known| text.contains(known))
}

/// Returns the addresses of a host, as [`addresses`] does.
///
/// # Cancel safety
/// As [`addresses`].
///
/// # Errors
/// `Store` if the host is not known, `Unavailable` if it could not be looked up. The message names the host, and says what
/// to see to.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use tenure_endpoint::{Host, look_up};
///
/// // No name server is needed to tell that no host has this name.
/// let unknown = look_up(&Host::new("-nowhere", 6379)).await.unwrap_err();
/// assert!(unknown.to_string().starts_with("the host -nowhere is not known"));
/// # }
/// ```
pub async fn look_up(host: &Host) -> Result<Vec<SocketAddr>, BackendError> {
    addresses(host).await.map_err(|error| failed(host, &error))
}

/// The error for a host that was not found.
fn failed(host: &Host, error: &io::Error) -> BackendError {
    let name = host.name();
    let (fault, message) = if is_unknown_host(error) {
        let message = format!("the host {name} is not known: correct the URL, or see the name server");
        (Fault::Store, message)
    } else {
        let message = format!("the host {name} cannot be looked up: see whether the name server answers");
        (Fault::Unavailable, message)
    };
    BackendError::because(fault, Effect::None, message, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client waits for a name server that is away, as it waits for the store.
    #[test]
    fn only_an_unknown_host_is_a_permanent_error() {
        for (text, is_permanent) in [
            (
                "failed to lookup address information: Name or service not known",
                true,
            ),
            (
                "failed to lookup address information: Temporary failure in name resolution",
                false,
            ),
            (
                "no thread can be started to look db up: Resource temporarily unavailable",
                false,
            ),
        ] {
            let error = failed(&Host::new("db", 5432), &io::Error::other(text));
            assert_eq!(error.is_transient(), !is_permanent, "{error}");
        }
    }

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
