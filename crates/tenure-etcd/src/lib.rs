#![doc = include_str!("docs.md")]

#[doc(hidden)]
pub mod client;
mod config;
mod error;
mod locks;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

pub use config::Config;
pub use locks::{EtcdStore, LockEvidence};
pub use tenure_endpoint::{Credentials, Host, Secret, StoreUrl, Tls};
