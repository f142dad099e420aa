//! What a worker process does.

mod args;
mod counter;
mod entry;
mod face;
mod holding;
mod process;
mod task;
mod wish;

pub use args::Args;
pub(crate) use args::{counters, register};
pub(crate) use counter::counted;
pub use process::work;
