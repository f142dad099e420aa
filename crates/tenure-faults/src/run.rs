//! A run from its first worker to its report.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::Client;

use crate::control::{Crew, Sight, everybody_gets_a_lock, nothing_is_left, somebody_takes_over, strike};
use crate::journal::Journal;
use crate::judge::{Finding, Law, Report, judge};
use crate::keys::Key;
use crate::plant::Plant;
use crate::register::Register;
use crate::schedule::{Menu, Schedule};
use crate::store::Store;
use crate::worker::{self, Args};

/// What a run is like unless it is told otherwise.
const PROCESSES: usize = 4;
const TASKS: u64 = 5;
const SPAN: Duration = Duration::from_secs(30);

/// How many holders are killed once the weather is calm.
const TAKEOVERS: usize = 3;

/// How long everybody together may take to get a lock, and to end: some holds are long, and a client may rest before it
/// connects again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run with faults, to be made.
///
/// It takes its seed from `TENURE_SEED`, else by chance; and its length from `TENURE_FAULT_SECONDS`, else as given here.
#[derive(Clone, Debug)]
pub struct Run {
    worker: PathBuf,
    seed: u64,
    span: Duration,
    menu: Menu,
    plant: Option<Plant>,
    patience: Duration,
}

impl Run {
    /// A run of 30 s with every fault, whose workers are that program.
    ///
    /// # Panics
    /// If the environment names a seed or a length that is no number.
    pub fn new(worker: impl AsRef<Path>) -> Run {
        Run {
            worker: worker.as_ref().to_owned(),
            seed: number("TENURE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)),
            span: number("TENURE_FAULT_SECONDS").map_or(SPAN, Duration::from_secs),
            menu: Menu::ALL,
            plant: None,
            patience: PATIENCE,
        }
    }

    /// With misfortune for so long, whatever the environment says.
    #[must_use]
    pub fn lasting(mut self, span: Duration) -> Run {
        self.span = span;
        self
    }

    /// With these faults alone.
    #[must_use]
    pub fn with(mut self, menu: Menu) -> Run {
        self.menu = menu;
        self
    }

    /// With a bug.
    #[must_use]
    pub fn planted(mut self, plant: Plant) -> Run {
        self.plant = Some(plant);
        self
    }

    /// With so much patience for workers that get no lock, or do not end, in calm weather; 30 s otherwise.
    #[must_use]
    pub fn patient_for(mut self, patience: Duration) -> Run {
        self.patience = patience;
        self
    }

    /// Makes the run.
    ///
    /// # Cancel safety
    /// Dropping the future kills the workers; the logs stay.
    ///
    /// # Errors
    /// What the system says if workers or servers cannot be started, and what makes logs unreadable: the run has shown
    /// nothing. The logs are kept.
    pub async fn on(self, store: Store) -> io::Result<Report> {
        let folder = tempfile::Builder::new().prefix("tenure-faults-").tempdir()?;
        let folder = folder.keep();
        let (seed, logs) = (self.seed, folder.display().to_string());
        // Known even if the run never comes to its report.
        println!("faults: TENURE_SEED={seed}, logs in {logs}");
        let report = self.make(store, folder).await;
        report.map_err(|error| io::Error::other(format!("{error}; TENURE_SEED={seed}, logs in {logs}")))
    }

    async fn make(self, mut store: Store, folder: PathBuf) -> io::Result<Report> {
        let client = tenure::connect(&store.url()).await.map_err(io::Error::other)?;
        let _register = self.register(&folder)?;
        let mut crew = self.crew(&folder, &mut store).await?;
        let schedule = Schedule::new(self.seed, self.span, crew.seats(), self.menu.on(&store));
        std::fs::write(folder.join("schedule"), format!("{schedule:#?}"))?;

        let (mut deeds, mut findings, mut takeovers) = (Vec::new(), Vec::new(), Vec::new());
        if let Err(finding) = everybody_gets_a_lock(&mut crew, TASKS, self.patience).await? {
            findings.push(finding);
        } else {
            deeds = strike(schedule, self.span, &mut crew, &mut store).await?;
            findings.extend(self.calm(&mut crew, &mut takeovers).await?);
        }
        findings.extend(self.end(&mut crew, &client).await);
        findings.extend(kept_for_ever(&store)?);

        let told = deeds.iter().map(ToString::to_string).collect();
        let mut register = Sight::of(&register_log(&folder))?;
        register.look()?;
        let (mut events, mut notes) = (Vec::new(), Vec::new());
        for sight in crew.seen()?.chain([&register]) {
            events.extend_from_slice(&sight.events);
            notes.extend_from_slice(&sight.notes);
        }
        let mut verdict = judge(events, &notes, crew.worked(), &deeds, client.profile().hazards);
        verdict.findings.extend(findings);
        Ok(Report {
            seed: self.seed,
            store: client.profile().store.to_owned(),
            span: self.span,
            lost_updates: (verdict.bumped as u64).saturating_sub(counted(&folder)?),
            folder,
            deeds: told,
            verdict,
            takeovers,
        })
    }

    fn register(&self, folder: &Path) -> io::Result<Register> {
        let forgets = self.plant == Some(Plant::Forget);
        let journal = Journal::open(&register_log(folder))?;
        Register::start(&worker::register(folder), journal, forgets)
    }

    async fn crew(&self, folder: &Path, store: &mut Store) -> io::Result<Crew> {
        std::fs::create_dir(worker::counters(folder))?;
        let args = |url| Args {
            url,
            folder: folder.to_owned(),
            process: 0,
            tasks: TASKS,
            seed: self.seed,
            plant: self.plant,
        };
        let urls = store.link(PROCESSES).await?;
        Crew::start(&self.worker, urls.into_iter().map(args).collect())
    }

    /// What can be asked for once the misfortune is over; the first thing that goes wrong ends the asking.
    async fn calm(&self, crew: &mut Crew, takeovers: &mut Vec<Duration>) -> io::Result<Option<Finding>> {
        if let Err(finding) = everybody_gets_a_lock(crew, TASKS, self.patience).await? {
            return Ok(Some(finding));
        }
        let takes = if self.menu.successions { TAKEOVERS } else { 0 };
        for time in 0..takes {
            match somebody_takes_over(crew, time % crew.seats()).await? {
                Ok(time) => takeovers.push(time),
                Err(finding) => return Ok(Some(finding)),
            }
        }
        Ok(everybody_gets_a_lock(crew, TASKS, self.patience).await?.err())
    }

    /// Ends the workers, and looks at what they leave behind.
    async fn end(&self, crew: &mut Crew, client: &Client) -> Vec<Finding> {
        let mut findings = Vec::new();
        let discipline = |what| Finding {
            law: Law::Discipline,
            what,
        };
        findings.extend(crew.deserters().into_iter().map(discipline));
        let killed = crew.end(self.patience).await;
        if killed > 0 {
            findings.push(discipline(format!(
                "{killed} workers did not end within {:?}",
                self.patience
            )));
        }
        findings.extend(nothing_is_left(client).await.err());
        findings
    }
}

/// What the environment says; nothing if it is silent.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is to be a number, and is {text:?}")))
}

fn register_log(folder: &Path) -> PathBuf {
    folder.join("register.log")
}

/// L4 for what `inspect` does not show.
fn kept_for_ever(store: &Store) -> io::Result<Option<Finding>> {
    let kept = store.kept_for_ever()?;
    let what = format!("kept in the store for ever: {}", kept.join(", "));
    let is_litter = !kept.is_empty();
    Ok(is_litter.then_some(Finding { law: Law::L4, what }))
}

/// What all counters say together.
fn counted(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for key in Key::all() {
        sum += worker::counted(&worker::counters(folder), key.name)?;
    }
    Ok(sum)
}
