#![doc = include_str!("docs.md")]

mod access;
mod adopt;
mod backend;
mod busy;
mod config;
mod connection;
mod ddl;
mod error;
mod examine;
mod file;
mod file_system;
mod inspect;
mod mailbox;
mod names;
mod notification;
mod open;
mod origin;
mod paths;
mod profile;
mod reader;
mod request;
mod sharing;
mod siblings;
mod subscribers;
mod system_files;
mod tables;
#[cfg(test)]
mod tests;
mod transaction;
mod validate;
mod watch;
mod worker;
mod write_lock;

pub use backend::SqliteStore;
pub use config::Config;
pub use ddl::schema;
pub use open::{open, open_with};
pub use paths::{default_path, shadowed_path};
