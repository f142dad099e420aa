//! The settings of TLS that a URL names.

use std::path::{Path, PathBuf};

use tenure_backend::BackendError;

use crate::error::invalid;
use crate::options::{Known, Options};

/// TLS settings: the trusted authorities, and the certificate of the client.
///
/// # Examples
/// ```
/// use tenure_endpoint::{Known, StoreUrl, Tls};
///
/// let url = StoreUrl::parse("rediss://cache?ca=/etc/cache/ca.pem")?;
/// let options = url.options(&Tls::OPTIONS)?;
/// let tls = Tls::from_options(&options, "rediss", url.scheme() == "rediss")?.expect("the scheme asks for it");
/// assert_eq!(tls.ca.as_deref(), Some("/etc/cache/ca.pem".as_ref()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The file with the certificates of the trusted authorities (PEM). Without a file, the system's are trusted.
    pub ca: Option<PathBuf>,
    /// The files with the client's certificate and key (PEM), if the server asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The options that [`from_options`](Tls::from_options) reads.
    pub const OPTIONS: [Known; 3] = [Known::path("ca"), Known::path("cert"), Known::path("key")];

    /// Reads the options `ca`, `cert` and `key`; `None` if the URL asks for no TLS. A store whose URLs ask for TLS by their
    /// scheme names that `scheme`.
    ///
    /// # Errors
    /// `Invalid` for one of `cert` and `key` without the other, and for options of TLS without TLS.
    pub fn from_options(options: &Options, scheme: &str, is_tls: bool) -> Result<Option<Tls>, BackendError> {
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| options.path(name).map(Path::to_owned));
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(invalid("`cert` and `key` belong together: give both")),
        };
        let tls = Tls { ca, identity };
        match is_tls {
            true => Ok(Some(tls)),
            false if tls.is_usual() => Ok(None),
            false => Err(invalid(format!(
                "`ca`, `cert` and `key` are for TLS: write `{scheme}://`"
            ))),
        }
    }

    /// Returns whether the system's authorities are trusted, and the client has no certificate.
    fn is_usual(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }
}
