#![doc = include_str!("docs.md")]

#[doc(hidden)]
pub mod client;
mod config;
mod error;
mod locks;

pub use config::Config;
pub use locks::{EtcdStore, LockEvidence};
pub use tenure_endpoint::{Credentials, Host, Secret, StoreUrl, Tls};
