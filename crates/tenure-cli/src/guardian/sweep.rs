//! Kills the descendants of this process, except those that the caller spares, and no other process.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, wait, waitid, waitpid,
};
use tenure::Instant;

use super::process_tree;
use super::protocol::Status;

/// How long a sweep tries to kill processes of other users before it reports them as unreached.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// Shortest pause between two rounds of kills, and the first. Each later pause is twice as long, up to
/// `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What a round of kills has left alive.
#[derive(Debug, PartialEq)]
pub(super) enum RoundResult {
    /// At least one process is left that another round may kill. That round follows after this pause.
    Running(Duration),
    /// No process is left (the list is empty), or only these processes of other users, which the kernel has not
    /// allowed this process to kill for `REFUSAL_LIMIT`.
    Unreachable(Vec<i32>),
}

/// Kills a command's first process (its leader) and all descendants of this process that are not spared, in rounds.
///
/// The leader is reaped last. Until then no other process can get its process group id.
#[derive(Debug)]
pub(super) struct Sweep {
    leader: Option<Pid>,
    /// Descendants that are not the command's, and must not be killed.
    spared: Vec<process_tree::ProcessIdentity>,
    status: Option<Status>,
    refused_since: Option<Instant>,
    pause: Duration,
}

impl Sweep {
    pub(super) fn of(leader: Option<Pid>, spared: Vec<process_tree::ProcessIdentity>) -> Sweep {
        Sweep {
            leader,
            spared,
            status: None,
            refused_since: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// Returns how the leader ended, once it was reaped.
    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    /// Sends KILL to every process that is left, and reaps the dead ones.
    pub(super) fn round(&mut self, now: Instant) -> RoundResult {
        if let Some(leader) = self.leader {
            // The group comes first: the kernel signals all its members in one step, which no `fork` can escape.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        // If /proc cannot be read, the kernel has at least killed the group, and another round follows.
        let children = self.children().unwrap_or_default();
        let mut refused = Vec::new();
        for &child in &children {
            if process_tree::Descendant::child(child).signal(Signal::KILL) == Err(Errno::PERM) {
                refused.push(child);
            }
        }
        for descendant in children.iter().flat_map(|&child| process_tree::below(child)) {
            // A failure needs no action. Either the process has died, or it belongs to another user. In that case it
            // becomes a child of this process when its parent dies, and a later round adds it to `refused`.
            let _ = descendant.signal(Signal::KILL);
        }
        children
            .iter()
            .filter(|&&child| Some(child) != self.leader)
            .for_each(|&child| reap(child));
        if let Some(pids) = self.unreachable(&refused, now) {
            return RoundResult::Unreachable(pids);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        RoundResult::Running(pause)
    }

    /// Returns the processes that this process is not allowed to kill, empty if all ended. `None`: try another round.
    fn unreachable(&mut self, refused: &[Pid], now: Instant) -> Option<Vec<i32>> {
        let dead_leader = self.leader.filter(|&leader| ended(leader));
        let left: Vec<Pid> = self
            .children()
            .unwrap_or_default()
            .into_iter()
            .filter(|&pid| Some(pid) != dead_leader)
            .collect();
        if left.is_empty() {
            return self.is_over().then(Vec::new);
        }
        if !left.iter().all(|pid| refused.contains(pid)) {
            self.refused_since = None;
            return None;
        }
        if now < *self.refused_since.get_or_insert(now) + REFUSAL_LIMIT {
            return None;
        }
        self.reap_leader();
        Some(left.into_iter().map(Pid::as_raw_pid).collect())
    }

    /// Returns whether no child is left. Uses the lists in /proc if processes are spared. Otherwise asks the kernel,
    /// because the lists can miss a process that was just created or reparented.
    fn is_over(&mut self) -> bool {
        self.reap_leader();
        if self.leader.is_some() {
            return false;
        }
        if !self.spared.is_empty() {
            return self.children().is_ok_and(|children| children.is_empty());
        }
        matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD))
    }

    /// Returns the children that are not spared. Fails if /proc cannot be read: a spared process might be taken for one of
    /// the command's, and one of the command's might be overlooked.
    fn children(&self) -> io::Result<Vec<Pid>> {
        let mut children = Vec::new();
        for pid in process_tree::children()? {
            if !self.is_spared(pid)? {
                children.push(pid);
            }
        }
        Ok(children)
    }

    fn is_spared(&self, pid: Pid) -> io::Result<bool> {
        match self.spared.iter().find(|spared| spared.pid == pid) {
            Some(&spared) => Ok(process_tree::ProcessIdentity::of(pid)? == Some(spared)),
            None => Ok(false),
        }
    }

    fn reap_leader(&mut self) {
        let Some(leader) = self.leader else { return };
        match waitpid(Some(leader), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                self.status = status
                    .exit_status()
                    .map(Status::Exited)
                    .or(status.terminating_signal().map(Status::Signaled));
                self.leader = None;
            }
            // The leader is not, or no longer, a child of this process, so its status is unknown.
            Err(_) => self.leader = None,
            Ok(None) => {}
        }
    }
}

/// Returns whether a child has ended, without reaping it.
pub(super) fn ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))
}

/// Reaps a child if it has ended.
pub(super) fn reap(child: Pid) {
    // An error means that the child was reaped already.
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

/// Sends `signal` to the group of `leader`, and to every descendant of this process outside that group.
pub(super) fn signal_all(leader: Pid, signal: Signal) {
    let outside: Vec<process_tree::Descendant> = process_tree::all_below()
        .filter(|descendant| descendant.group() != Some(leader))
        .collect();
    // Ignores failures: if the kernel refuses the signal, the sweep kills the process later, or reports it as
    // unreached.
    let _ = kill_process_group(leader, signal);
    for descendant in outside {
        let _ = descendant.signal(signal);
    }
}
