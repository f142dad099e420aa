//! The worker process: its tasks, the locks that they acquire, and the resources that they write to.

mod args;
mod attempt_log;
mod hold;
mod lock;
mod plan;
mod process;
mod resources;
mod task;

pub use args::{Args, PlantedBug};
pub use process::work;
pub(crate) use resources::Resources;
