//! Lets tests control the lock clients of other projects. Not meant for users.

mod build;
mod driver;
mod peer;
mod worker;

pub use driver::Driver;
pub use peer::{Lock, Owner, Peer};
pub use worker::{Reply, Thrown, Worker};
