#![doc = include_str!("docs.md")]

mod backend;
mod fates;
mod profile;
mod room;
mod show;
mod store;
mod table;
mod tokens;
mod turn;
mod visit;
mod watch;

pub use backend::Memory;
pub use store::MemoryStore;
