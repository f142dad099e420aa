//! Real Redisson, in a Java process of its own that a test drives.

mod build;
mod fleet;
mod jvm;

pub use build::Version;
pub use fleet::{Fleet, Lock, Owner};
pub use jvm::{Jvm, Reply, Thrown};
