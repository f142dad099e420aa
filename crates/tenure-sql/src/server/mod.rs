#![doc = include_str!("docs.md")]

pub(crate) mod config;
pub(crate) mod dial;
pub(crate) mod error;
pub(crate) mod findings;
mod open;
pub(crate) mod pool;
pub(crate) mod template;
pub(crate) mod tls;
pub(crate) mod values;

pub use config::Config;
pub use open::{create, open, schema};
pub use tenure_endpoint::{Credentials, Secret, StoreUrl};
