//! Store URLs and their options, with credentials that cannot be printed.
//!
//! [`StoreUrl::parse`] reads the URL of a store. [`StoreUrl::options`] checks the URL's options against those that the
//! store knows. `Debug`, `Display` and all errors omit the password; only [`Secret::expose`] returns it.

mod duration;
mod error;
mod host;
mod login;
#[cfg(feature = "lookup")]
mod lookup;
mod options;
mod parse;
mod password_file;
mod percent;
mod redaction;
mod secret;
#[cfg(feature = "tls")]
mod tls;
mod tls_settings;
mod url;

pub use duration::{InvalidDuration, parse_duration};
pub use error::{InvalidUrl, Part};
pub use host::Host;
pub use login::{Credentials, Login};
#[cfg(feature = "lookup")]
pub use lookup::addresses;
pub use options::{Known, Options};
pub use password_file::{PasswordFile, PasswordFileError, read_password_file};
pub use secret::Secret;
#[cfg(feature = "tls")]
pub use tls::{TlsError, Verification, system_authorities, tls_config, tls_config_verifying};
pub use tls_settings::Tls;
pub use url::StoreUrl;
