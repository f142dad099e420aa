//! The SQLite store: one file, and one thread that serves it.

pub(crate) mod access;
mod accounts;
mod adopt;
mod busy;
mod connection;
mod ddl;
mod examine;
mod file;
mod file_system;
mod inspect;
pub(crate) mod mailbox;
mod mounts;
mod notification;
mod opening;
mod origin;
mod paths;
mod reader;
mod sharing;
mod siblings;
mod system_files;
mod tables;
#[cfg(test)]
mod tests;
mod thread;
pub(crate) mod transaction;
mod validate;
mod version;
mod watch;
mod worker;
mod write_lock;

pub use ddl::schema;
pub use opening::{open, open_with};
pub use paths::{default_path, shadowed_path};
