//! TLS settings for stores on the network: rustls on ring, with the certificate authorities of the system or of a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The reason why a TLS configuration cannot be made.
///
/// # Examples
/// ```
/// use tenure_endpoint::{TlsError, tls_config};
///
/// let refused = tls_config(Some("/nowhere/ca.pem".as_ref()), None).unwrap_err();
/// assert!(matches!(refused, TlsError::File { .. }));
/// assert_eq!(refused.to_string(), "/nowhere/ca.pem has no certificate or key that can be read (PEM)");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or contains no certificate or key.
    #[error("{} has no certificate or key that can be read (PEM)", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason. It contains nothing that was read from the file.
        source: io::Error,
    },
    /// The system has no readable certificate of an authority.
    #[error("this system has no certificates of authorities: install them, or name a file with `ca`")]
    NoAuthorities,
    /// rustls does not accept the certificates, or the key does not belong to the client's certificate.
    #[error("the certificate and its key cannot be used for TLS")]
    Unfit(#[source] rustls::Error),
}

/// Creates the TLS configuration of a client.
///
/// The client trusts the certificate authorities in the file `ca`, or those of the system if `ca` is `None`.
/// `identity` is its certificate and key, for servers that ask for them. The process's default crypto provider of
/// rustls is neither used nor changed.
///
/// # Errors
/// [`TlsError`]. It contains nothing that was read from the files, neither in its message nor in its source.
pub fn tls_config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unfit)?
        .with_root_certificates(authorities(ca)?);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key_of = |path: &Path| PrivateKeyDer::from_pem_file(path).map_err(unreadable(path));
            builder
                .with_client_auth_cert(certificates(certificate)?, key_of(key)?)
                .map_err(TlsError::Unfit)?
        }
    };
    Ok(Arc::new(config))
}

fn authorities(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                let invalid = |error| file_error(path)(io::Error::new(io::ErrorKind::InvalidData, error));
                roots.add(certificate).map_err(invalid)?;
            }
        }
        // Skips system certificates that cannot be read, and trusts the others.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if roots.is_empty() {
        return Err(TlsError::NoAuthorities);
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable(path))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unreadable(path))?;
    if found.is_empty() {
        return Err(unreadable(path)(pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Converts an error of the PEM reader. Omits the text of a syntax error, which may quote a line of the file, even of
/// a private key.
fn unreadable(path: &Path) -> impl Fn(pem::Error) -> TlsError {
    move |error| {
        file_error(path)(match error {
            pem::Error::Io(error) => error,
            pem::Error::NoItemsFound => io::Error::new(io::ErrorKind::InvalidData, "it contains none"),
            _ => io::Error::new(io::ErrorKind::InvalidData, "it is no valid PEM"),
        })
    }
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> TlsError {
    move |source| TlsError::File {
        path: path.to_owned(),
        source,
    }
}
