//! TLS as the client crate wants to have it described.

use mysql_async::{ClientIdentity, Error, IoError, SslOpts};
use tenure_backend::BackendError;
use tenure_endpoint::{Verification, system_authorities, tls_config_verifying};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{self, CertificateError};

use crate::server::error::invalid;
use crate::server::{Config, TlsMode};

/// Describes the TLS of a store; `None` without TLS. Reads the certificates, so that a wrong file fails early. The client
/// crate reads the named files again at each connect.
///
/// The client crate uses the process's default provider of cryptography. If there is none, this makes it ring's.
pub(super) fn settings(config: &Config) -> Result<Option<SslOpts>, BackendError> {
    let Some(verification) = verification(config) else {
        return Ok(None);
    };
    // Flattens the cause into the message, because `Invalid` errors carry no source.
    let unfit = |error| invalid(format!("no TLS can be spoken: {error}"));
    let identity = config.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
    tls_config_verifying(verification, config.ca.as_deref(), identity).map_err(unfit)?;
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has just installed one, which then serves as well.
        let _ = ring::default_provider().install_default();
    }
    let identity = config
        .identity
        .clone()
        .map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    let settings = SslOpts::default().with_client_identity(identity);
    Ok(Some(match verification {
        Verification::Nothing => settings.with_danger_accept_invalid_certs(true),
        Verification::Authority | Verification::Host => {
            let authorities = match &config.ca {
                Some(file) => vec![file.clone().into()],
                None => system_authorities()
                    .map_err(unfit)?
                    .into_iter()
                    .map(|one| one.to_vec().into())
                    .collect(),
            };
            settings
                .with_root_certs(authorities)
                .with_disable_built_in_roots(true)
        }
    }))
}

fn verification(config: &Config) -> Option<Verification> {
    Some(match config.tls {
        TlsMode::Disable => return None,
        TlsMode::VerifyFull => Verification::Host,
        TlsMode::VerifyCa => Verification::Authority,
        // Naming an authority asks for it to be verified.
        TlsMode::Require if config.ca.is_some() => Verification::Authority,
        TlsMode::Require | TlsMode::Prefer => Verification::Nothing,
    })
}

/// A name for which the refused certificate is valid, if a trusted authority has signed it and any host may use it.
///
/// The client crate has a setting that skips the check of the host, but it has no effect with current versions of rustls. So
/// the client connects again, with a name that the certificate has. A certificate without names is refused.
pub(super) fn other_name(error: &Error, config: &Config) -> Option<String> {
    if verification(config) != Some(Verification::Authority) {
        return None;
    }
    let Error::Io(IoError::Io(error)) = error else {
        return None;
    };
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) = error
    else {
        return None;
    };
    // Each is written as `DnsName("db.example")` or `IpAddress(10.0.0.1)`.
    let names = presented.iter().filter_map(|name| {
        let name = name
            .strip_prefix("DnsName(")
            .or_else(|| name.strip_prefix("IpAddress("))?;
        Some(name.strip_suffix(')')?.trim_matches('"'))
    });
    names.map(|name| name.replace('*', "any")).next()
}
