//! Runs the real Redisson in a Java process that tests control.

mod build;
mod fleet;
mod jvm;

pub use build::Version;
pub use fleet::{Fleet, Lock, Owner};
pub use jvm::{Jvm, Reply, Thrown};
