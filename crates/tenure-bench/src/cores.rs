//! Gives the server a core of its own, and the other cores to its clients. Otherwise the system runs the server and
//! a client at times on one core and at times on two, and that changes the rates more than the choice of the client.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Fallible;

/// The core that is reserved for the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core(usize);

impl Core {
    /// Reserves the first core on which this thread may run: moves this thread, and the threads and processes that it
    /// starts later, to the other cores.
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

    /// Makes the process run on this core only.
    pub(crate) fn give_to(self, process: u32) -> Fallible<()> {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = process.ok_or("this is no process's number")?;
        let mut only = CpuSet::new();
        only.set(self.0);
        Ok(sched_setaffinity(Some(process), &only)?)
    }
}
