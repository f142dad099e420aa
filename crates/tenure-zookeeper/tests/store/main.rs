//! Tests of locks in ZooKeeper.

#[path = "../case/mod.rs"]
mod case;
mod lagging;
mod locks;
mod permissions;
mod replies;
mod samples;
