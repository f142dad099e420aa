#![doc = include_str!("docs.md")]
#![cfg(all(unix, feature = "sqlite"))]

mod backend;
mod claims;
mod config;
mod dialect;
mod display;
mod error;
mod profile;
mod request;
mod subscribers;

pub use backend::SqlStore;
pub use config::Config;
pub use dialect::sqlite;
