//! Clients on Redis: one server, Sentinel, a cluster and a quorum.
#![cfg(feature = "redis")]

mod calls;
mod cluster;
mod connect_limit;
#[cfg(feature = "quorum")]
mod evictions;
mod layouts;
mod own_thread;
mod reconnect;
#[cfg(feature = "quorum")]
mod redlock;
mod scans;
mod sentinel;
