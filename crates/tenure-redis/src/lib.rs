#![doc = include_str!("docs.md")]

mod acquire;
mod answer;
mod backend;
mod clock;
mod config;
mod dial;
mod distance;
mod error;
mod examine;
mod inspect;
mod known;
mod link;
mod names;
mod profile;
mod refusal;
mod release;
mod renew;
mod script;
mod spin;
mod together;
mod watch;
mod wire;

pub use backend::RedisStore;
pub use config::{Config, Tls};
