//! The workers: one process on each seat, and another in its place when it is killed.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::{Instant, LockKey};
use tenure_servers::Process;
use tokio::time::sleep;

use super::sight::Sight;
use crate::journal::now;
use crate::worker::Args;

/// How often a process that is to end is looked at.
const PACE: Duration = Duration::from_millis(10);

/// A process that works or has worked. The first has the number 1.
#[derive(Clone, Debug)]
pub(crate) struct Worked {
    pub(crate) number: u64,
    pub(crate) seat: usize,
    /// When it was known to be dead, if it was killed.
    pub(crate) died: Option<Instant>,
}

/// Who works at present.
#[derive(Debug)]
struct Seat {
    args: Args,
    process: Process,
    sight: Sight,
}

/// All workers of a run.
#[derive(Debug)]
pub(crate) struct Crew {
    program: String,
    seats: Vec<Seat>,
    worked: Vec<Worked>,
    /// What was seen of those that were replaced.
    replaced: Vec<Sight>,
}

impl Crew {
    /// Starts a worker of that program for each of the arguments, which differ in their URL.
    pub(crate) fn start(program: &Path, workers: Vec<Args>) -> io::Result<Crew> {
        let mut crew = Crew {
            program: program.display().to_string(),
            seats: Vec::new(),
            worked: Vec::new(),
            replaced: Vec::new(),
        };
        for (seat, args) in workers.into_iter().enumerate() {
            let worker = crew.launch(seat, args)?;
            crew.seats.push(worker);
        }
        Ok(crew)
    }

    fn launch(&mut self, seat: usize, mut args: Args) -> io::Result<Seat> {
        args.process = self.worked.len() as u64 + 1;
        let log = args.log();
        let sight = Sight::of(&log)?;
        let json = serde_json::to_string(&args)?;
        let process = Process::start(&self.program, &[json], &[], &log.with_extension("err"))?;
        self.worked.push(Worked {
            number: args.process,
            seat,
            died: None,
        });
        Ok(Seat { args, process, sight })
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
        if !self.seats[seat].process.is_running() {
            return Err(io::Error::other(self.deserters().join("\n")));
        }
        self.seats[seat].process.kill();
        let dead = now();
        self.bury(seat, dead);
        // What it wrote last is worth seeing.
        self.seats[seat].sight.look()?;
        Ok(dead)
    }

    /// Starts a worker in the place of a dead one.
    pub(crate) fn fill(&mut self, seat: usize) -> io::Result<()> {
        let args = self.seats[seat].args.clone();
        let worker = self.launch(seat, args)?;
        let dead = std::mem::replace(&mut self.seats[seat], worker);
        self.replaced.push(dead.sight);
        Ok(())
    }

    /// What can be seen of the worker on that seat, at this moment.
    pub(crate) fn look(&mut self, seat: usize) -> io::Result<&Sight> {
        let sight = &mut self.seats[seat].sight;
        sight.look()?;
        Ok(sight)
    }

    /// When a worker other than that one wrote the counter of that key last.
    pub(crate) fn latest_bump_elsewhere(&mut self, seat: usize, key: &LockKey) -> io::Result<Instant> {
        let mut latest = Instant::ORIGIN;
        for other in (0..self.seats()).filter(|other| *other != seat) {
            latest = latest.max(self.look(other)?.bumped(key));
        }
        Ok(latest)
    }

    /// When any worker was granted that key last.
    pub(crate) fn latest_grant(&mut self, key: &LockKey) -> io::Result<Instant> {
        let mut latest = Instant::ORIGIN;
        for seat in 0..self.seats() {
            latest = latest.max(self.look(seat)?.granted(key));
        }
        Ok(latest)
    }

    /// The workers that run no more although nobody ended them, with what they said.
    pub(crate) fn deserters(&mut self) -> Vec<String> {
        let mut gone = Vec::new();
        for seat in &mut self.seats {
            if !seat.process.is_running() {
                let said = seat.process.log();
                gone.push(format!("worker {} ended by itself: {said}", seat.args.process));
            }
        }
        gone
    }

    /// Asks all to end, and kills those that have not within the limit; answers how many that were.
    pub(crate) async fn end(&mut self, limit: Duration) -> usize {
        for seat in &self.seats {
            seat.process.ask_to_end();
        }
        let end = now() + limit;
        while now() < end && self.seats.iter_mut().any(|seat| seat.process.is_running()) {
            sleep(PACE).await;
        }
        let mut killed = 0;
        for seat in 0..self.seats() {
            if self.seats[seat].process.is_running() {
                self.seats[seat].process.kill();
                killed += 1;
                self.bury(seat, now());
            }
        }
        killed
    }

    /// Writes down when the worker on that seat was known to be dead. Processes are numbered in the order of their start.
    fn bury(&mut self, seat: usize, dead: Instant) {
        let number = self.seats[seat].args.process;
        self.worked[number as usize - 1].died = Some(dead);
    }

    /// All that was seen of all who have worked.
    pub(crate) fn seen(&mut self) -> io::Result<impl Iterator<Item = &Sight>> {
        for seat in &mut self.seats {
            seat.sight.look()?;
        }
        Ok(self.seats.iter().map(|seat| &seat.sight).chain(&self.replaced))
    }

    /// Everybody who has worked.
    pub(crate) fn worked(&self) -> &[Worked] {
        &self.worked
    }
}
