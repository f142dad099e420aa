//! A process that stands still.
//! Not here: which, and why (`trial`).

use std::io;

use rustix::process::{Pid, Signal, kill_process};

/// A process that stands still until this is dropped: as one whose machine is suspended, or that collects garbage.
pub(crate) struct Paused(Pid);

impl Paused {
    /// Stops a process of this machine.
    pub(crate) fn stop(pid: i64) -> io::Result<Paused> {
        let pid = i32::try_from(pid)
            .ok()
            .filter(|pid| *pid > 1)
            .and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("this is no process to stop"))?;
        kill_process(pid, Signal::STOP)?;
        Ok(Paused(pid))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
