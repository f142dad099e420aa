//! The workers: one process on each seat, and another in its place when it is killed.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::Instant;
use tenure_servers::Process;
use tokio::time::sleep;

use super::sight::Sight;
use crate::log::now;
use crate::worker::Args;

/// How often a worker, or the store, is looked at while something is waited for.
const PACE: Duration = Duration::from_millis(2);

/// Looks again and again until there is something to see; `None` if there was nothing within the limit.
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

/// A process that works or has worked. The first has the number 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worked {
    pub(crate) number: u64,
    pub(crate) seat: usize,
    /// When it was known to be dead, if it was killed.
    pub(crate) died: Option<Instant>,
}

/// A worker, what can be seen of it, and what it was told.
#[derive(Debug)]
struct Worker {
    worked: Worked,
    process: Process,
    sight: Sight,
    args: Args,
}

/// All workers of a run.
#[derive(Debug)]
pub(crate) struct Crew {
    program: String,
    /// Who works at present.
    seats: Vec<Worker>,
    /// Those that were killed and replaced.
    replaced: Vec<Worker>,
}

impl Crew {
    /// Starts a worker of that program for each of the arguments, which differ in their URL.
    pub(crate) fn start(program: &Path, workers: Vec<Args>) -> io::Result<Crew> {
        let mut crew = Crew {
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
        let sight = Sight::of(&log)?;
        let json = serde_json::to_string(&args)?;
        let process = Process::start(&self.program, &[json], &[], &log.with_extension("err"))?;
        let worked = Worked {
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

    /// Kills the worker; answers when it was dead. One that has ended by itself is an error.
    pub(crate) fn kill(&mut self, seat: usize) -> io::Result<Instant> {
        let worker = &mut self.seats[seat];
        if !worker.process.is_running() {
            return Err(io::Error::other(self.deserters().join("\n")));
        }
        worker.process.kill();
        let dead = now();
        worker.worked.died = Some(dead);
        Ok(dead)
    }

    /// Starts a worker in the place of a dead one.
    pub(crate) fn fill(&mut self, seat: usize) -> io::Result<()> {
        let worker = self.launch(seat, self.seats[seat].args.clone())?;
        self.replaced
            .push(std::mem::replace(&mut self.seats[seat], worker));
        Ok(())
    }

    /// What can be seen of the worker on that seat, at this moment.
    pub(crate) fn look(&mut self, seat: usize) -> io::Result<&Sight> {
        let sight = &mut self.seats[seat].sight;
        sight.look()?;
        Ok(sight)
    }

    /// Whether that can be seen of any who works at present.
    pub(crate) fn shows(&mut self, what: impl Fn(&Sight) -> bool) -> io::Result<bool> {
        for seat in 0..self.seats() {
            if what(self.look(seat)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The workers that run no more although nobody ended them, with what they said.
    pub(crate) fn deserters(&mut self) -> Vec<String> {
        let gone = self.seats.iter_mut().filter_map(|worker| {
            let (number, said) = (worker.worked.number, worker.process.log());
            (!worker.process.is_running()).then(|| format!("worker {number} ended by itself: {said}"))
        });
        gone.collect()
    }

    /// Asks all to end, and kills those that have not within the limit; answers how many that were.
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

    /// All who have worked, with all that was seen of them.
    pub(crate) fn seen(&mut self) -> io::Result<Vec<(Worked, &Sight)>> {
        let workers = self.replaced.iter_mut().chain(&mut self.seats);
        let seen = workers.map(|worker| {
            worker.sight.look()?;
            Ok((worker.worked, &worker.sight))
        });
        seen.collect()
    }
}
