//! TLS settings for stores on the network: rustls on ring, with the certificate authorities of the system or of a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tenure_backend::BackendError;

use crate::error::{invalid, with_causes};
use crate::tls_settings::Tls;

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

/// What a client verifies of the server's certificate.
///
/// # Examples
/// See [`tls_config_verifying`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Nothing: the connection is encrypted, but anyone can pretend to be the server.
    Nothing,
    /// A trusted authority has signed it, for whatever host.
    Authority,
    /// A trusted authority has signed it for this host.
    Host,
}

/// Creates the TLS configuration of a client that verifies less of the server's certificate than [`tls_config`], as the
/// clients of some databases can be told to.
///
/// # Errors
/// As [`tls_config`].
///
/// # Examples
/// ```
/// use tenure_endpoint::{Verification, tls_config_verifying};
///
/// assert!(tls_config_verifying(Verification::Nothing, None, None).is_ok());
/// ```
pub fn tls_config_verifying(
    verification: Verification,
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let authority = match verification {
        Verification::Host => return tls_config(ca, identity),
        Verification::Authority => Some(Arc::new(authorities(ca)?)),
        Verification::Nothing => None,
    };
    let provider = Arc::new(ring::default_provider());
    let authority = authority.map(|roots| {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
        verifier.map_err(|error| TlsError::Unfit(rustls::Error::General(error.to_string())))
    });
    let verifier = Arc::new(AnyHost {
        authority: authority.transpose()?,
        provider: provider.clone(),
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unfit)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(TlsError::Unfit)?,
    };
    Ok(Arc::new(config))
}

/// Accepts certificates for any host: those of the authorities if there are some, otherwise all.
#[derive(Debug)]
struct AnyHost {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        match authority.verify_server_cert(certificate, intermediates, host, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
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
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(TlsError::Unfit)?,
    };
    Ok(Arc::new(config))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(unreadable(path))
}

impl Tls {
    /// Creates the TLS configuration of a client with these settings, as [`tls_config`] does.
    ///
    /// # Errors
    /// `Invalid` if a certificate or key cannot be used. The message contains the cause.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, BackendError> {
        let identity = self.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
        let read = tls_config(self.ca.as_deref(), identity);
        read.map_err(|error| invalid(format!("no TLS can be spoken: {}", with_causes(&error))))
    }
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

/// The certificates of the system's authorities, except those that rustls cannot read: for a client crate that makes its
/// own TLS configuration.
///
/// # Errors
/// [`TlsError::NoAuthorities`].
///
/// # Examples
/// ```
/// use tenure_endpoint::{TlsError, system_authorities};
///
/// match system_authorities() {
///     Ok(certificates) => assert!(!certificates.is_empty()),
///     Err(error) => assert!(matches!(error, TlsError::NoAuthorities)),
/// }
/// ```
pub fn system_authorities() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut found = rustls_native_certs::load_native_certs().certs;
    found.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
    match found.is_empty() {
        true => Err(TlsError::NoAuthorities),
        false => Ok(found),
    }
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
