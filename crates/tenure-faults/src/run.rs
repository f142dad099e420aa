//! One run: starts the workers, injects faults, checks what the workers logged, and reports.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::Client;

use crate::control::{Workers, a_dead_holder_is_succeeded, every_task_gets_a_lock, inject, nothing_is_left};
use crate::fault::FaultSet;
use crate::judge::{Finding, Law, Report, judge};
use crate::keys::{KEYS, longest_lease, longest_stay};
use crate::store::Store;
use crate::worker::{Args, PlantedBug, Resources};

/// Number of worker processes of a run, number of tasks of each process, and default time with faults.
const PROCESSES: usize = 4;
const TASKS: u64 = 5;
const SPAN: Duration = Duration::from_secs(15);

/// Number of holders that are killed after the faults have ended.
const TAKEOVERS: usize = 3;

/// Default of `Run::patience`. Some holds are long, and a client may pause before it reconnects.
const PATIENCE: Duration = Duration::from_secs(30);

/// Configuration of a run with faults.
#[derive(Clone, Debug)]
pub struct Run {
    /// Path of the worker program.
    pub worker: PathBuf,
    /// Seed of the faults and of the workers' choices.
    pub seed: u64,
    /// Time during which faults are injected.
    pub span: Duration,
    /// Worker faults to inject.
    pub fault_set: FaultSet,
    /// Bug to plant in the workers.
    pub plant: Option<PlantedBug>,
    /// Time limit for every task to get a lock without faults, and for all workers to end.
    pub patience: Duration,
}

impl Run {
    /// Configures a run with all faults. The seed comes from `TENURE_SEED`, or is random; the length comes from
    /// `TENURE_FAULT_SECONDS`, or is 15 s.
    ///
    /// # Panics
    /// Panics if one of these environment variables is not a number.
    pub fn new(worker: impl AsRef<Path>) -> Run {
        Run {
            worker: worker.as_ref().to_owned(),
            seed: number("TENURE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)),
            span: number("TENURE_FAULT_SECONDS").map_or(SPAN, Duration::from_secs),
            fault_set: FaultSet::ALL,
            plant: None,
            patience: PATIENCE,
        }
    }

    /// Carries out the run on a store.
    ///
    /// # Cancel safety
    /// Dropping the future kills the workers. The logs are kept.
    ///
    /// # Errors
    /// Returns an error if the store, a worker or a server fails in a way that no fault explains, or if a log cannot be
    /// read. The run then proves nothing. The logs are kept.
    pub async fn on(self, store: Store) -> io::Result<Report> {
        let folder = tempfile::Builder::new().prefix("tenure-faults-").tempdir()?;
        let folder = folder.keep();
        let (seed, logs) = (self.seed, folder.display().to_string());
        // Printed first, so that the seed is known even if the run does not finish.
        println!("faults: TENURE_SEED={seed}, logs in {logs}");
        let report = self.carry_out(store, folder).await;
        report.map_err(|error| io::Error::other(format!("{error}; TENURE_SEED={seed}, logs in {logs}")))
    }

    async fn carry_out(self, mut store: Store, folder: PathBuf) -> io::Result<Report> {
        let client = tenure::connect(store.url()).await.map_err(io::Error::other)?;
        let args = |url| Args {
            url,
            folder: folder.clone(),
            process: 0,
            tasks: TASKS,
            seed: self.seed,
            plant: self.plant,
        };
        let args = store.link(PROCESSES).await?.into_iter().map(args).collect();
        let longest = longest_lease(client.profile());
        let mut workers = Workers::start(&self.worker, args)?;

        let (mut fault_log, mut findings, mut takeovers) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(finding) = every_task_gets_a_lock(&mut workers, TASKS, self.patience).await? {
            findings.push(finding);
        } else {
            fault_log = inject(self.seed, self.fault_set, self.span, &mut workers, &mut store).await?;
            findings.extend(
                self.check_liveness(&mut workers, longest_stay(client.profile()), &mut takeovers)
                    .await?,
            );
        }
        findings.extend(self.end(&mut workers, &client, &mut store).await?);
        fault_log.extend(store.unexpected_failover().await?);

        let (mut events, mut notes, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for (run, log) in workers.logs()? {
            events.extend_from_slice(&log.events);
            notes.extend_from_slice(&log.notes);
            runs.push(run);
        }
        let mut verdict = judge(
            events,
            &notes,
            &runs,
            &fault_log,
            client.profile().hazards,
            longest,
        );
        verdict.findings.extend(findings);
        Ok(Report {
            seed: self.seed,
            store: store.name(),
            span: self.span,
            lost_updates: (verdict.bumped as u64).saturating_sub(counted(&folder)?),
            folder,
            fault_log,
            verdict,
            takeovers,
        })
    }

    /// Checks laws L1 and L2 after the faults have ended. Returns the first violation.
    async fn check_liveness(
        &self,
        workers: &mut Workers,
        longest_stay: Duration,
        takeovers: &mut Vec<Duration>,
    ) -> io::Result<Option<Finding>> {
        let mut found = every_task_gets_a_lock(workers, TASKS, self.patience).await?;
        let kills = if self.fault_set.successions { TAKEOVERS } else { 0 };
        for number in 0..kills {
            if found.is_none() {
                found =
                    a_dead_holder_is_succeeded(workers, number % workers.seats(), longest_stay, takeovers)
                        .await?;
            }
        }
        match found {
            Some(finding) => Ok(Some(finding)),
            None => every_task_gets_a_lock(workers, TASKS, self.patience).await,
        }
    }

    /// Ends the workers. Checks that none ended earlier, that all end in time, and that nothing is left in the store.
    async fn end(
        &self,
        workers: &mut Workers,
        client: &Client,
        store: &mut Store,
    ) -> io::Result<Vec<Finding>> {
        let mut bad_exits = workers.exited_workers();
        let killed = workers.end(self.patience).await?;
        if killed > 0 {
            bad_exits.push(format!("{killed} workers did not end within {:?}", self.patience));
        }
        let law = Law::WorkerExit;
        let findings = bad_exits.into_iter().map(|what| Finding { law, what });
        Ok(findings.chain(nothing_is_left(client, store).await?).collect())
    }
}

/// Number in an environment variable, if it is set.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, but is {text:?}")))
}

fn counted(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for key in KEYS {
        sum += Resources::counted(folder, key.name)?;
    }
    Ok(sum)
}
