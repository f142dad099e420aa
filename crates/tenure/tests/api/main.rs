//! The public API, on memory and on one server of its own.

mod changes;
mod connect;
mod election;
mod guarantees;
#[cfg(feature = "serde")]
mod json;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(feature = "testing", feature = "blocking"))]
mod testing;
#[cfg(feature = "zookeeper")]
mod zookeeper;
