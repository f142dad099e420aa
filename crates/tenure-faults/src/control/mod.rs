//! Controller of a run: starts workers, injects faults, and checks liveness afterwards.

mod fault;
mod injector;
mod liveness;
mod log_reader;
mod workers;

pub use fault::FaultSet;
pub(crate) use injector::{InjectedFault, Scope, inject};
pub(crate) use liveness::{a_dead_holder_is_succeeded, every_task_gets_a_lock, nothing_is_left};
pub(crate) use workers::{WorkerRun, Workers};
