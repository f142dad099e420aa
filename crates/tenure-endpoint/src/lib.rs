//! Store URLs and their options, with credentials that cannot be printed, and connections to their hosts.
//!
//! [`StoreUrl::parse`] reads the URL of a store. [`StoreUrl::options`] checks the URL's options against those that the
//! store knows. [`Dialer`] connects to a host, and [`first_to_serve`] tries several in turn. `Debug`, `Display` and all
//! errors omit the password; only [`Secret::expose`] returns it.

#[cfg(feature = "lookup")]
mod connect;
#[cfg(feature = "dial")]
mod dial;
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
#[cfg(feature = "dial")]
mod turns;
mod url;

#[cfg(feature = "lookup")]
pub use connect::first_to_accept;
#[cfg(feature = "dial")]
pub use dial::{Dialer, ServerKind, Stream};
pub use duration::{InvalidDuration, parse_duration};
pub use error::{InvalidUrl, Part, with_causes};
pub use host::Host;
pub use login::{Credentials, Login};
#[cfg(feature = "lookup")]
pub use lookup::{addresses, is_unknown_host, look_up};
pub use options::{Known, Options};
pub use password_file::{PasswordFile, PasswordFileError, read_password_file};
pub use secret::Secret;
#[cfg(feature = "tls")]
pub use tls::{TlsError, Verification, system_authorities, tls_config, tls_config_verifying};
pub use tls_settings::Tls;
#[cfg(feature = "dial")]
pub use turns::{Refused, first_to_serve};
pub use url::StoreUrl;
