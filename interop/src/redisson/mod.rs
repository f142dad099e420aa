//! Real Redisson, in a Java process of its own that a test drives.
//! Not here: what it does, which is in `java/`, and any opinion on what it should do.

mod build;
mod fleet;
mod jvm;

pub use build::Version;
pub use fleet::{Fleet, Lock, Owner};
pub use jvm::{Jvm, Reply, Thrown};
