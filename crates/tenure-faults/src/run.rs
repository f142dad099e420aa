//! A run from its first worker to its report.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::Client;

use crate::control::{Crew, Menu, everybody_gets_a_lock, nothing_is_left, somebody_takes_over, strike};
use crate::judge::{Finding, Law, Report, judge};
use crate::keys::KEYS;
use crate::store::Store;
use crate::worker::{Args, Plant, Resources};

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
#[derive(Clone, Debug)]
pub struct Run {
    /// The program of the workers.
    pub worker: PathBuf,
    /// What decides the faults.
    pub seed: u64,
    /// For how long there are faults.
    pub span: Duration,
    /// Which faults there are.
    pub menu: Menu,
    /// A bug to be found.
    pub plant: Option<Plant>,
    /// How long workers may get no lock, or not end, in calm weather.
    pub patience: Duration,
}

impl Run {
    /// A run with every fault, whose workers are that program. It takes its seed from `TENURE_SEED`, else by chance; and its
    /// length from `TENURE_FAULT_SECONDS`, else it is 30 s.
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
        let args = |url| Args {
            url,
            folder: folder.clone(),
            process: 0,
            tasks: TASKS,
            seed: self.seed,
            plant: self.plant,
        };
        let workers = store.link(PROCESSES).await?.into_iter().map(args);
        let mut crew = Crew::start(&self.worker, workers.collect())?;

        let (mut deeds, mut findings, mut takeovers) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(finding) = everybody_gets_a_lock(&mut crew, TASKS, self.patience).await? {
            findings.push(finding);
        } else {
            deeds = strike(self.seed, self.menu, self.span, &mut crew, &mut store).await?;
            findings.extend(self.calm(&mut crew, &mut takeovers).await?);
        }
        findings.extend(self.end(&mut crew, &client, &store).await?);

        let (mut events, mut notes, mut worked) = (Vec::new(), Vec::new(), Vec::new());
        for (worker, sight) in crew.seen()? {
            events.extend_from_slice(&sight.events);
            notes.extend_from_slice(&sight.notes);
            worked.push(worker);
        }
        let mut verdict = judge(events, &notes, &worked, &deeds, client.profile().hazards);
        verdict.findings.extend(findings);
        Ok(Report {
            seed: self.seed,
            store: client.profile().store.to_owned(),
            span: self.span,
            lost_updates: (verdict.bumped as u64).saturating_sub(counted(&folder)?),
            folder,
            deeds,
            verdict,
            takeovers,
        })
    }

    /// What can be asked for once the misfortune is over; the first thing that goes wrong ends the asking.
    async fn calm(&self, crew: &mut Crew, takeovers: &mut Vec<Duration>) -> io::Result<Option<Finding>> {
        let mut found = everybody_gets_a_lock(crew, TASKS, self.patience).await?;
        let takes = if self.menu.successions { TAKEOVERS } else { 0 };
        for time in 0..takes {
            if found.is_none() {
                found = somebody_takes_over(crew, time % crew.seats(), takeovers).await?;
            }
        }
        match found {
            Some(finding) => Ok(Some(finding)),
            None => everybody_gets_a_lock(crew, TASKS, self.patience).await,
        }
    }

    /// Ends the workers, and looks at what they leave behind.
    async fn end(&self, crew: &mut Crew, client: &Client, store: &Store) -> io::Result<Vec<Finding>> {
        let mut undisciplined = crew.deserters();
        let killed = crew.end(self.patience).await?;
        if killed > 0 {
            undisciplined.push(format!("{killed} workers did not end within {:?}", self.patience));
        }
        let law = Law::Discipline;
        let findings = undisciplined.into_iter().map(|what| Finding { law, what });
        Ok(findings.chain(nothing_is_left(client, store).await?).collect())
    }
}

/// What the environment says; nothing if it is silent.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is to be a number, and is {text:?}")))
}

/// What all counters say together.
fn counted(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for key in KEYS {
        sum += Resources::counted(folder, key.name)?;
    }
    Ok(sum)
}
