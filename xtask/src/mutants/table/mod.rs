//! The mutants, by the part of the project that they harm.
//! Not here: how they are tried.
//!
//! A text to be found is as short as may be and stands once in its file, so that most changes of the code leave the
//! mutant as it is. Where the code moves on, the mutant follows; where a test is renamed, too.

mod belief;
mod changes;
mod command;
mod election;
mod ending;
mod faces;
mod keeping;
mod list;
mod memory;
mod passing;
mod queueing;
mod redis;
mod redis_calls;
mod redis_refusals;
mod redis_remembered;
mod sqlite;
mod testkit;
mod threads;
mod waiting;

pub(crate) use list::all;
