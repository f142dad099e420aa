//! Tests of this crate's client of ZooKeeper, below the locks.

mod cuts;
mod fixture;
mod requests;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod watches;
