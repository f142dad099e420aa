//! What the settings say of TLS.

#[cfg(feature = "tls")]
use std::sync::Arc;

use tenure_backend::BackendError;
#[cfg(feature = "tls")]
use tenure_endpoint::{Tls, Verification, tls_config_verifying, with_causes};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::ClientConfig;

use super::config::{Config, TlsMode};
#[cfg(feature = "tls")]
use super::error::invalid;

/// What is verified of the server's certificate.
#[cfg(feature = "tls")]
pub(crate) fn verification(config: &Config) -> Verification {
    match config.tls {
        TlsMode::VerifyFull => Verification::Host,
        TlsMode::VerifyCa => Verification::Authority,
        // As libpq does: naming an authority asks for it to be verified.
        TlsMode::Require if config.tls_files.ca.is_some() => Verification::Authority,
        TlsMode::Require | TlsMode::Prefer | TlsMode::Disable => Verification::Nothing,
    }
}

/// Reads the certificates. Fails if they are invalid.
#[cfg(feature = "tls")]
pub(crate) fn client_config(config: &Config) -> Result<Arc<ClientConfig>, BackendError> {
    let Tls { ca, identity } = &config.tls_files;
    let identity = identity.as_ref().map(|(cert, key)| (&**cert, &**key));
    let read = tls_config_verifying(verification(config), ca.as_deref(), identity);
    read.map_err(|error| unfit(&error))
}

/// Error for certificates that cannot be used. It has the cause in its message.
#[cfg(feature = "tls")]
pub(crate) fn unfit(error: &dyn std::error::Error) -> BackendError {
    invalid(format!("no TLS can be spoken: {}", with_causes(error)))
}

/// Fails if the settings ask for TLS, which this build lacks.
#[cfg(not(feature = "tls"))]
pub(crate) fn refuse(config: &Config) -> Result<(), BackendError> {
    if config.tls <= TlsMode::Prefer {
        return Ok(());
    }
    let option = config.database.tls_option(TlsMode::Disable);
    Err(BackendError::unsupported(format!(
        "TLS was left out of this build: enable the feature `tls`, or write `{option}`"
    )))
}
