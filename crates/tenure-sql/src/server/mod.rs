#![doc = include_str!("docs.md")]

mod config;
pub(crate) mod error;
mod open;
pub(crate) mod pool;

pub use config::Config;
pub(crate) use config::{Database, Place, TlsMode};
pub use open::{create, open, schema};
pub use tenure_endpoint::{Credentials, Secret, StoreUrl};
