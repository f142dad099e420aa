//! Store URLs and their options, with credentials that cannot be printed.
//!
//! [`StoreUrl::parse`] reads the one line that names a store; [`StoreUrl::options`] checks its query against what
//! the store knows. `Debug`, `Display` and every error show a URL without its password; only [`Secret::expose`]
//! gives it out.

mod duration;
mod error;
mod host;
mod options;
mod parse;
mod password_file;
mod secret;
mod shown;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use duration::{DurationError, parse_duration};
pub use error::{Part, UrlError};
pub use host::Host;
pub use options::{Known, Options};
pub use password_file::{PasswordFile, PasswordFileError, read_password_file};
pub use secret::Secret;
#[cfg(feature = "tls")]
pub use tls::{TlsError, tls_config};
pub use url::StoreUrl;
