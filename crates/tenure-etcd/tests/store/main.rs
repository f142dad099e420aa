//! Tests of locks in etcd.

#[path = "../case/mod.rs"]
mod case;
mod locks;
mod network;
mod operations;
mod samples;
