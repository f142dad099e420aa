//! Fixtures: PostgreSQL servers, lock tables on them, clients, and the textbook's own clients.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod calls;
mod case;
mod textbook;

pub(crate) use calls::*;
pub(crate) use case::*;
pub(crate) use textbook::Textbook;
