#![doc = include_str!("docs.md")]

mod acquire;
mod backend;
mod claims;
mod cluster;
mod config;
mod connection;
mod error;
mod examine;
mod inspect;
mod layout;
mod profile;
mod release;
mod renew;
mod topology;
mod watch;

pub use backend::RedisStore;
pub use cluster::RedisCluster;
pub use config::Config;
pub use connection::recovery::Member;
pub use layout::Layout;
pub use tenure_endpoint::{Credentials, Host, Secret, StoreUrl, Tls};
