#![doc = include_str!("docs.md")]

mod config;
pub(crate) mod dial;
pub(crate) mod error;
pub(crate) mod findings;
mod open;
pub(crate) mod pool;
pub(crate) mod template;
pub(crate) mod tls;
pub(crate) mod values;

pub use config::Config;
#[cfg(any(feature = "postgres", feature = "tls"))]
pub(crate) use config::TlsMode;
pub(crate) use config::{Database, Place};
pub use open::{create, open, schema};
pub use tenure_endpoint::{Credentials, Secret, StoreUrl};
