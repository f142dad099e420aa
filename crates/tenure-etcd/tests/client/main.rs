//! Tests of this crate's client of etcd, below the locks.

mod auth;
mod fixture;
mod keep_alive;
mod members;
mod messages;
#[cfg(feature = "tls")]
mod tls;
mod watch;
