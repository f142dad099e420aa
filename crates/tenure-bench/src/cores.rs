//! A core for the server alone, and the others for those who call it. Left to itself the system runs two threads that wake
//! each other now on one core, now on two, and that is worth more than what is compared.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Fallible;

/// The core that is left to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core(usize);

impl Core {
    /// Leaves the first core that this thread may run on: it goes, with the threads and processes that it starts from now
    /// on, to the others.
    pub(crate) fn leave() -> Fallible<Core> {
        let mut others = sched_getaffinity(None)?;
        let is_allowed = |core: &usize| others.is_set(*core);
        let first = (0..CpuSet::MAX_CPU)
            .find(is_allowed)
            .ok_or("the system names no core")?;
        others.unset(first);
        if others.count() == 0 {
            return Err(
                "`--distance apart` needs two cores, one for the server and another: leave it out, or take `away`"
                    .into(),
            );
        }
        sched_setaffinity(None, &others)?;
        Ok(Core(first))
    }

    /// Runs the process on this core, and nowhere else.
    pub(crate) fn give_to(self, process: u32) -> Fallible<()> {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = process.ok_or("this is no process's number")?;
        let mut only = CpuSet::new();
        only.set(self.0);
        Ok(sched_setaffinity(Some(process), &only)?)
    }
}
