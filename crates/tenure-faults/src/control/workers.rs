//! Worker processes of a run. Each has a numbered seat; when it is killed, another worker takes the seat.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::Instant;
use tenure_servers::Process;
use tokio::time::sleep;

use super::log_reader::LogReader;
use crate::log::now;
use crate::worker::Args;

/// Interval at which `within` checks its condition.
const PACE: Duration = Duration::from_millis(2);

/// Calls `look` every 2 ms until it returns a value. Returns `None` after the time limit.
pub(crate) async fn within<T>(
    limit: Duration,
    mut look: impl AsyncFnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let end = now() + limit;
    loop {
        let seen = look().await?;
        if seen.is_some() || now() > end {
            return Ok(seen);
        }
        sleep(PACE).await;
    }
}

/// Identity of a worker process, which may have ended. Numbers start at 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerRun {
    pub(crate) number: u64,
    pub(crate) seat: usize,
    /// A time at which the process was certainly dead, if this program killed it.
    pub(crate) died: Option<Instant>,
}

/// Worker process with its log and its arguments.
#[derive(Debug)]
struct Worker {
    worked: WorkerRun,
    process: Process,
    sight: LogReader,
    args: Args,
}

/// All worker processes of a run.
#[derive(Debug)]
pub(crate) struct Workers {
    program: String,
    /// Current worker of each seat.
    seats: Vec<Worker>,
    /// Workers that were killed and replaced.
    replaced: Vec<Worker>,
}

impl Workers {
    /// Starts a worker process for each element of `workers`, which becomes its arguments.
    pub(crate) fn start(program: &Path, workers: Vec<Args>) -> io::Result<Workers> {
        let mut crew = Workers {
            program: program.display().to_string(),
            seats: Vec::new(),
            replaced: Vec::new(),
        };
        for args in workers {
            let worker = crew.launch(crew.seats.len(), args)?;
            crew.seats.push(worker);
        }
        Ok(crew)
    }

    fn launch(&self, seat: usize, mut args: Args) -> io::Result<Worker> {
        args.process = (self.seats.len() + self.replaced.len()) as u64 + 1;
        let log = args.log();
        let sight = LogReader::of(&log)?;
        let json = serde_json::to_string(&args)?;
        let process = Process::start(&self.program, &[json], &[], &log.with_extension("err"))?;
        let worked = WorkerRun {
            number: args.process,
            seat,
            died: None,
        };
        Ok(Worker {
            worked,
            process,
            sight,
            args,
        })
    }

    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }

    pub(crate) fn pause(&self, seat: usize) {
        self.seats[seat].process.pause();
    }

    pub(crate) fn resume(&self, seat: usize) {
        self.seats[seat].process.resume();
    }

    /// Kills the worker of a seat. Returns a time at which it was certainly dead. Fails if it had already exited by
    /// itself.
    pub(crate) fn kill(&mut self, seat: usize) -> io::Result<Instant> {
        let worker = &mut self.seats[seat];
        if !worker.process.is_running() {
            return Err(io::Error::other(self.exited_workers().join("\n")));
        }
        worker.process.kill();
        let dead = now();
        worker.worked.died = Some(dead);
        Ok(dead)
    }

    /// Starts a new worker on the seat of a killed one.
    pub(crate) fn fill(&mut self, seat: usize) -> io::Result<()> {
        let worker = self.launch(seat, self.seats[seat].args.clone())?;
        self.replaced
            .push(std::mem::replace(&mut self.seats[seat], worker));
        Ok(())
    }

    /// Reads the new lines in the log of the seat's worker, and returns the reader.
    pub(crate) fn look(&mut self, seat: usize) -> io::Result<&LogReader> {
        let sight = &mut self.seats[seat].sight;
        sight.look()?;
        Ok(sight)
    }

    /// Reads the new lines of all logs. Returns whether `what` is true for the log of any current worker.
    pub(crate) fn shows(&mut self, what: impl Fn(&LogReader) -> bool) -> io::Result<bool> {
        for seat in 0..self.seats() {
            if what(self.look(seat)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Messages about current workers that have exited by themselves, each with the worker's error output.
    pub(crate) fn exited_workers(&mut self) -> Vec<String> {
        let gone = self.seats.iter_mut().filter_map(|worker| {
            let (number, said) = (worker.worked.number, worker.process.log());
            (!worker.process.is_running()).then(|| format!("worker {number} ended by itself: {said}"))
        });
        gone.collect()
    }

    /// Sends SIGTERM to all workers, and kills those that have not exited within the limit. Returns the number killed.
    pub(crate) async fn end(&mut self, limit: Duration) -> io::Result<usize> {
        for worker in &self.seats {
            worker.process.ask_to_end();
        }
        let runs = |worker: &mut Worker| worker.process.is_running();
        within(limit, async || {
            Ok((!self.seats.iter_mut().any(runs)).then_some(()))
        })
        .await?;
        let mut killed = 0;
        for worker in &mut self.seats {
            if runs(worker) {
                worker.process.kill();
                worker.worked.died = Some(now());
                killed += 1;
            }
        }
        Ok(killed)
    }

    /// Returns all workers, current and replaced, each with its log, which is read to the end.
    pub(crate) fn seen(&mut self) -> io::Result<Vec<(WorkerRun, &LogReader)>> {
        let workers = self.replaced.iter_mut().chain(&mut self.seats);
        let seen = workers.map(|worker| {
            worker.sight.look()?;
            Ok((worker.worked, &worker.sight))
        });
        seen.collect()
    }
}
