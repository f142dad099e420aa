//! Worker processes of a run. Each has a numbered seat. A worker that replaces a killed one takes its seat.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::Instant;
use tenure_servers::Process;
use tokio::time::sleep;

use super::log_reader::LogReader;
use crate::log::now;
use crate::worker::Args;

/// Interval of checks while waiting for a condition.
const PACE: Duration = Duration::from_millis(2);

/// Calls `check` every 2 ms until it returns a value. Returns `None` after the time limit.
pub(crate) async fn within<T>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let end = now() + limit;
    loop {
        let value = check().await?;
        if value.is_some() || now() > end {
            return Ok(value);
        }
        sleep(PACE).await;
    }
}

/// Identity of a running or ended worker process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerRun {
    /// Number of the process, unique within the fault run, from 1.
    pub(crate) number: u64,
    /// Index of the process's place in the run, from 0. The process that replaces a killed one has the same seat.
    pub(crate) seat: usize,
    /// Time by which the process was dead, if it was killed.
    pub(crate) died: Option<Instant>,
}

#[derive(Debug)]
struct Worker {
    run: WorkerRun,
    process: Process,
    log: LogReader,
    args: Args,
}

#[derive(Debug)]
pub(crate) struct Workers {
    program: String,
    seats: Vec<Worker>,
    /// Workers that were killed and replaced.
    replaced: Vec<Worker>,
}

impl Workers {
    /// Starts a worker process for each element of `workers`.
    pub(crate) fn start(program: &Path, workers: Vec<Args>) -> io::Result<Workers> {
        let mut started = Workers {
            program: program.display().to_string(),
            seats: Vec::new(),
            replaced: Vec::new(),
        };
        for args in workers {
            let worker = started.launch(started.seats.len(), args)?;
            started.seats.push(worker);
        }
        Ok(started)
    }

    fn launch(&self, seat: usize, mut args: Args) -> io::Result<Worker> {
        args.process = (self.seats.len() + self.replaced.len()) as u64 + 1;
        let path = args.log();
        let log = LogReader::of(&path)?;
        let json = serde_json::to_string(&args)?;
        let process = Process::start(&self.program, &[json], &[], &path.with_extension("err"))?;
        let run = WorkerRun {
            number: args.process,
            seat,
            died: None,
        };
        Ok(Worker {
            run,
            process,
            log,
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

    /// Kills the worker of a seat. Returns a time by which it was dead. Fails if it had already exited.
    pub(crate) fn kill(&mut self, seat: usize) -> io::Result<Instant> {
        let worker = &mut self.seats[seat];
        if !worker.process.is_running() {
            return Err(io::Error::other(self.exited_workers().join("\n")));
        }
        worker.process.kill();
        let dead = now();
        worker.run.died = Some(dead);
        Ok(dead)
    }

    /// Starts a new worker on the seat of a dead one.
    pub(crate) fn replace(&mut self, seat: usize) -> io::Result<()> {
        let worker = self.launch(seat, self.seats[seat].args.clone())?;
        self.replaced
            .push(std::mem::replace(&mut self.seats[seat], worker));
        Ok(())
    }

    /// Reads the new lines in the log of the seat's worker.
    pub(crate) fn read_log(&mut self, seat: usize) -> io::Result<&LogReader> {
        let log = &mut self.seats[seat].log;
        log.read()?;
        Ok(log)
    }

    /// Returns whether `matches` is true for the log of any current worker.
    pub(crate) fn any_log(&mut self, matches: impl Fn(&LogReader) -> bool) -> io::Result<bool> {
        for seat in 0..self.seats() {
            if matches(self.read_log(seat)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Error output of each worker that has exited by itself.
    pub(crate) fn exited_workers(&mut self) -> Vec<String> {
        let exited = self.seats.iter_mut().filter_map(|worker| {
            let (number, output) = (worker.run.number, worker.process.log());
            (!worker.process.is_running()).then(|| format!("worker {number} ended by itself: {output}"))
        });
        exited.collect()
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
                worker.run.died = Some(now());
                killed += 1;
            }
        }
        Ok(killed)
    }

    /// All current and replaced workers, each with its whole log.
    pub(crate) fn logs(&mut self) -> io::Result<Vec<(WorkerRun, &LogReader)>> {
        let workers = self.replaced.iter_mut().chain(&mut self.seats);
        let logs = workers.map(|worker| {
            worker.log.read()?;
            Ok((worker.run, &worker.log))
        });
        logs.collect()
    }
}
