//! Servers and networks that fail, and replicas that take over.

mod faults;
#[path = "../fixture/mod.rs"]
mod fixture;
mod promotion;
mod replicas;
mod sentinel;
mod writable_replica;
