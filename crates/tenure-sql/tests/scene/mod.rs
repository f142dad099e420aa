//! What the tests of files and processes have in common.
#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod actors;

pub(crate) use actors::*;
