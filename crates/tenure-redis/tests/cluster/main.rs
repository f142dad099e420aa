//! A cluster of Redis servers: its locks, and what happens when a slot moves or a master fails.

mod failover;
#[path = "../fixture/mod.rs"]
mod fixture;
mod locks;
mod slots;
