//! SQLite: one file, and one thread that serves it.

mod blocker;
mod busy;
mod connection;
mod ddl;
mod examine;
mod file;
mod handle;
pub(crate) mod mailbox;
mod mounts;
mod network;
mod opening;
mod origin;
mod place;
mod schema;
mod settle;
mod signal;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod turn;
mod version;
mod vigil;
mod worker;

pub use ddl::schema;
pub use handle::{open, open_with};
pub use place::{default_path, shadowed_path};
