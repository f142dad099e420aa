//! Controller of a run: starts workers, injects faults, and checks liveness afterwards.

mod injector;
mod liveness;
mod log_reader;
mod workers;

pub(crate) use injector::inject;
pub(crate) use liveness::{a_dead_holder_is_succeeded, every_task_gets_a_lock, nothing_is_left};
pub(crate) use workers::{WorkerRun, Workers};
