//! What a worker process does.

mod args;
mod entry;
mod face;
mod holding;
mod process;
mod resources;
mod task;
mod wish;

pub use args::{Args, Plant};
pub use process::work;
pub(crate) use resources::Resources;
