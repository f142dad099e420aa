//! Ends every process below this one, without ever hitting another.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, wait, waitid, waitpid,
};
use tenure::Instant;

use super::kin;
use super::protocol::Status;

/// How long a process that refuses our signals may live on before it is reported as unreached.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two rounds of killing: doubles from the first to the second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What a round left alive.
#[derive(Debug, PartialEq)]
pub(super) enum Left {
    /// Processes that can be killed: another round follows after this pause.
    Running(Duration),
    /// Only these processes of other users, if any, for longer than another round would help.
    Unreachable(Vec<i32>),
}

/// An end put to a command's leader and to all processes below this one.
///
/// The leader stays unreaped until nothing else is left, so that its group's number is never another's.
#[derive(Debug)]
pub(super) struct Sweep {
    leader: Option<Pid>,
    /// Processes below this one that are not the command's.
    spared: Vec<kin::Identity>,
    status: Option<Status>,
    refused_since: Option<Instant>,
    pause: Duration,
}

impl Sweep {
    pub(super) fn of(leader: Option<Pid>, spared: Vec<kin::Identity>) -> Sweep {
        Sweep {
            leader,
            spared,
            status: None,
            refused_since: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// How the leader ended, once it was reaped.
    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    /// KILLs whatever is left, and reaps what is dead.
    pub(super) fn round(&mut self, now: Instant) -> Left {
        if let Some(leader) = self.leader {
            // First, because the kernel does it in one step that no fork can slip through.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        let children = self.children();
        let mut refused = Vec::new();
        for &child in &children {
            if kin::Kin::child(child).signal(Signal::KILL) == Err(Errno::PERM) {
                refused.push(child);
            }
        }
        for kin in children.iter().flat_map(|&child| kin::below(child)) {
            // It died meanwhile, or belongs to another user; if so it becomes a child, and is counted then.
            let _ = kin.signal(Signal::KILL);
        }
        children
            .iter()
            .filter(|&&child| Some(child) != self.leader)
            .for_each(|&child| reap(child));
        if let Some(unreachable) = self.judge(&refused, now) {
            return Left::Unreachable(unreachable);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Left::Running(pause)
    }

    /// The processes that are left for others to end; `None` while some may still be ended here.
    fn judge(&mut self, refused: &[Pid], now: Instant) -> Option<Vec<i32>> {
        let dead_leader = self.leader.filter(|&leader| ended(leader));
        let left: Vec<Pid> = self
            .children()
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
        if now < *self.refused_since.get_or_insert(now) + PATIENCE {
            return None;
        }
        self.reap_leader();
        Some(left.into_iter().map(Pid::as_raw_pid).collect())
    }

    /// The lists in /proc may miss a child that is being born or handed over: the kernel has the last word.
    fn is_over(&mut self) -> bool {
        self.reap_leader();
        if self.leader.is_some() {
            return false;
        }
        if !self.spared.is_empty() {
            return self.children().is_empty();
        }
        matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD))
    }

    fn children(&self) -> Vec<Pid> {
        kin::children()
            .into_iter()
            .filter(|&pid| !self.is_spared(pid))
            .collect()
    }

    fn is_spared(&self, pid: Pid) -> bool {
        let known = self.spared.iter().find(|spared| spared.pid == pid);
        known.is_some_and(|&spared| kin::Identity::of(pid) == Some(spared))
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
            // Not our child, or not any more: nothing is known of its end.
            Err(_) => self.leader = None,
            Ok(None) => {}
        }
    }
}

/// Whether a child has ended; it stays unreaped.
pub(super) fn ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))
}

/// Reaps a child if it has ended.
pub(super) fn reap(child: Pid) {
    // A child that is alive, or was reaped already, is left as it is.
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

/// Sends `signal` to the group that `leader` leads and to every process below this one outside it.
pub(super) fn tell_all(leader: Pid, signal: Signal) {
    let outside: Vec<kin::Kin> = kin::all_below()
        .filter(|kin| kin.group() != Some(leader))
        .collect();
    // Who cannot be told is ended later, or reported as unreached.
    let _ = kill_process_group(leader, signal);
    for kin in outside {
        let _ = kin.signal(signal);
    }
}
