#![doc = include_str!("docs.md")]
// Without a dialect nobody calls the claim logic.
#![cfg_attr(not(all(unix, feature = "sqlite")), allow(dead_code, unused_imports))]

mod backend;
mod claims;
mod config;
mod dialect;
#[cfg(all(unix, feature = "sqlite"))]
mod error;
mod profile;
mod request;
#[cfg(all(unix, feature = "sqlite"))]
mod shown;
mod watch;

pub use backend::SqlStore;
pub use config::Config;
#[cfg(all(unix, feature = "sqlite"))]
pub use dialect::sqlite;
