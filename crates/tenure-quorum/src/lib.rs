#![doc = include_str!("docs.md")]

mod acquire;
mod attempts;
mod backend;
mod claim_state;
mod config;
mod examine;
mod inspect;
mod leftovers;
mod member;
mod members;
mod profile;
mod release;
mod renew;
mod votes;
mod watch;

pub use backend::Quorum;
pub use config::Config;
