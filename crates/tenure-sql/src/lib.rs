#![doc = include_str!("docs.md")]
#![cfg(all(unix, feature = "sqlite"))]

mod backend;
mod claims;
mod config;
mod dialect;
mod error;
mod profile;
mod request;
mod shown;
mod watch;

pub use backend::SqlStore;
pub use config::Config;
pub use dialect::sqlite;
