//! A server's processes: PostgreSQL has one for each client, and its main process is their parent.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait until the processes have stopped or ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The states of a process that has ended and waits for its parent to reap it.
const ENDED: [char; 2] = ['Z', 'X'];

/// The states of a process that is stopped or has ended.
const STILL: [char; 4] = ['T', 't', 'Z', 'X'];

/// Stops a process and its descendants. Returns the descendants, parents first. A stopped process starts no child, and
/// a child that ends keeps its ID until its parent continues, so the list is complete and names no other process.
pub(crate) fn pause(root: Pid) -> Vec<Pid> {
    let end = Instant::now() + PATIENCE;
    let mut tree = vec![root];
    let mut paused = 0;
    while let Some(&process) = tree.get(paused) {
        send(process, Signal::STOP);
        wait_for_state(process, end, &STILL);
        tree.extend(children(process));
        paused += 1;
    }
    tree.split_off(1)
}

/// Continues a process and its descendants, parents last: a parent that runs reaps its children, and their IDs become
/// free.
pub(crate) fn resume(root: Pid) {
    let mut tree = vec![root];
    let mut listed = 0;
    while let Some(&process) = tree.get(listed) {
        tree.extend(children(process));
        listed += 1;
    }
    for process in tree.into_iter().rev() {
        send(process, Signal::CONT);
    }
}

/// Stops a process and kills its descendants. Returns once they have ended, or after 5 s.
pub(crate) fn kill_descendants(root: Pid) {
    let descendants = pause(root);
    let end = Instant::now() + PATIENCE;
    for &process in descendants.iter().rev() {
        send(process, Signal::KILL);
    }
    for process in descendants {
        wait_for_state(process, end, &ENDED);
    }
}

pub(crate) fn send(process: Pid, signal: Signal) {
    // Fails if the process has ended.
    let _ = kill_process(process, signal);
}

fn wait_for_state(process: Pid, end: Instant, states: &[char]) {
    while state(process).is_some_and(|state| !states.contains(&state)) && Instant::now() < end {
        // sleep: the process first finishes its system call, and the system sends no event for that.
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns whether a process is stopped or has ended.
pub(crate) fn is_still(process: Pid) -> bool {
    state(process).is_none_or(|state| STILL.contains(&state))
}

/// The letter for the process's state; `None` if there is no such process.
fn state(process: Pid) -> Option<char> {
    let process = process.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The state follows the process's name, which is in brackets and may itself contain brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// The children of a process, from all of its threads.
fn children(process: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let tasks = tasks.into_iter().flatten().flatten();
    let mut children = Vec::new();
    for task in tasks {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let ids = list.split_whitespace().filter_map(|id| id.parse().ok());
        children.extend(ids.filter_map(Pid::from_raw));
    }
    children
}
