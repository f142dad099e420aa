//! Servers for these tests, and how they are looked at.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod calls;
mod java;
mod look;
mod scene;
mod server;

pub(crate) use calls::*;
pub(crate) use java::*;
pub(crate) use look::{Stage, printed, soon, wait_until, wakes_up};
pub(crate) use scene::Scene;
pub(crate) use server::{PASSWORD, Server, USER, config, connect, documented_rights, gathering, subject};
