//! Tests on one Redis server, which each test starts for itself.

mod access;
mod batch;
mod examine;
mod fencing;
#[path = "../fixture/mod.rs"]
mod fixture;
mod foreign_locks;
mod java;
mod java_queue;
mod layout;
mod listing;
mod password;
mod read_write;
mod records;
mod recovery;
mod samples;
mod semaphore;
mod string_layouts;
#[cfg(feature = "tls")]
mod tls;
