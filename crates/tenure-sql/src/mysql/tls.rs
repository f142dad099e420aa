//! TLS as the client crate wants to have it described.

use mysql_async::DriverError::NoClientSslFlagFromServer;
use mysql_async::{ClientIdentity, Conn, Error, IoError, OptsBuilder, SslOpts};
use tenure_backend::BackendError;
use tenure_endpoint::{Verification, system_authorities};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{self, CertificateError};

use crate::server::config::{Config, Place, TlsMode};
use crate::server::tls::{client_config, unfit, verification};

/// Settings of TLS; `None` without TLS.
pub(super) type Tls = Option<SslOpts>;

/// Describes the TLS of a store. Reads the certificates, so that a wrong file fails early. The client crate reads the named
/// files again at each connect.
///
/// The client crate uses the process's default provider of cryptography. If there is none, this makes it ring's.
pub(super) fn settings(config: &Config) -> Result<Tls, BackendError> {
    if config.tls == TlsMode::Disable {
        return Ok(None);
    }
    client_config(config)?;
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has just installed one, which then serves as well.
        let _ = ring::default_provider().install_default();
    }
    let identity = config.tls_files.identity.clone();
    let identity = identity.map(|(cert, key)| ClientIdentity::new(cert.into(), key.into()));
    let settings = SslOpts::default().with_client_identity(identity);
    Ok(Some(match verification(config) {
        Verification::Nothing => settings.with_danger_accept_invalid_certs(true),
        Verification::Authority | Verification::Host => {
            let authorities = match &config.tls_files.ca {
                Some(file) => vec![file.clone().into()],
                None => system_authorities()
                    .map_err(|error| unfit(&error))?
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

/// Connects, encrypted if the settings ask for it.
pub(super) async fn connect(
    config: &Config,
    tls: &Tls,
    place: &Place,
    settings: OptsBuilder,
) -> Result<Conn, Error> {
    let Some(tls) = tls.as_ref().filter(|_| matches!(place, Place::Host(_))) else {
        return Conn::new(settings).await;
    };
    match Conn::new(settings.clone().ssl_opts(tls.clone())).await {
        Err(Error::Driver(NoClientSslFlagFromServer)) if config.tls == TlsMode::Prefer => {
            Conn::new(settings).await
        }
        Err(error) => match other_name(&error, config) {
            Some(name) => {
                let tls = tls.clone().with_danger_tls_hostname_override(Some(name));
                Conn::new(settings.ssl_opts(tls)).await
            }
            None => Err(error),
        },
        opened => opened,
    }
}

/// A name for which the refused certificate is valid, if a trusted authority has signed it and any host may use it.
///
/// The client crate has a setting that skips the check of the host, but it has no effect with current versions of rustls. So
/// the client connects again, with a name that the certificate has. A certificate without names is refused.
fn other_name(error: &Error, config: &Config) -> Option<String> {
    if verification(config) != Verification::Authority {
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
