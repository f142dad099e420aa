//! The numbers of attempts: each says which task of which process made it, and none is used twice in a run.

/// How many processes, and tasks of each, a number has room for.
const TASK: u32 = 32;
const PROCESS: u32 = 40;

/// The number of the first attempt of a task.
pub(crate) fn first(process: u64, task: u64) -> u64 {
    process << PROCESS | task << TASK | 1
}

/// Which process made the attempt.
pub(crate) fn process_of(attempt: u64) -> u64 {
    attempt >> PROCESS
}

/// Which task of which process made the attempt, as one number.
pub(crate) fn task_of(attempt: u64) -> u64 {
    attempt >> TASK
}
