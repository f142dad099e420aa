#![doc = include_str!("docs.md")]

mod acquire;
mod attempts;
mod backend;
mod cleanup;
mod config;
mod examine;
mod inspect;
mod members;
mod profile;
mod release;
mod renew;
mod votes;
mod watch;

pub use backend::Quorum;
pub use config::Config;
