#![doc = include_str!("docs.md")]

mod acquire;
mod admission;
mod backend;
mod inspect;
mod key_state;
mod losses;
mod operation;
mod profile;
mod release;
mod renew;
mod store;
mod table;
mod tokens;
mod watch;
mod watchers;

pub use backend::Memory;
pub use store::MemoryStore;
