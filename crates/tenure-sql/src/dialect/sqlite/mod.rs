//! SQLite: one file, and one thread that serves it.

mod adopt;
mod busy;
mod connection;
mod ddl;
mod default_path;
mod examine;
mod file;
mod file_system;
mod inspect;
pub(crate) mod mailbox;
mod mounts;
mod notification;
mod open;
mod origin;
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
pub use default_path::{default_path, shadowed_path};
pub use open::{open, open_with};
