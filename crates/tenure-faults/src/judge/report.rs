//! Report of a run, as text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::finding::Law;
use super::verdict::Verdict;
use crate::fault::{InjectedFault, REPLACED};

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) store: String,
    pub(crate) span: Duration,
    /// Folder with the workers' logs.
    pub(crate) folder: PathBuf,
    /// Injected faults, and failovers that no fault caused, in order of time.
    pub(crate) fault_log: Vec<InjectedFault>,
    /// Findings and counts.
    pub verdict: Verdict,
    pub(crate) takeovers: Vec<Duration>,
    /// Minimum number of updates lost in the unfenced counters: logged writes minus final values.
    pub lost_updates: u64,
}

impl Report {
    /// Returns whether a law was violated.
    pub fn breaks(&self, law: Law) -> bool {
        self.verdict.findings.iter().any(|finding| finding.law == law)
    }

    /// If there are no findings, prints the report and removes the logs.
    ///
    /// # Panics
    /// Panics if there are findings. The message has the findings, the seed, the injected faults, and the folder of the
    /// logs.
    pub fn expect_clean(self) -> Report {
        assert!(self.verdict.findings.is_empty(), "{self}");
        println!("{self}");
        self.forget();
        self
    }

    /// Text with the number of faults of each kind, and the number of faults that changed a master.
    fn kinds(&self) -> String {
        let mut kinds = BTreeMap::new();
        for fault in &self.fault_log {
            let end = fault.what.find(|letter: char| !letter.is_alphanumeric());
            *kinds
                .entry(&fault.what[..end.unwrap_or(fault.what.len())])
                .or_insert(0) += 1;
            if fault.what.contains(REPLACED) {
                *kinds.entry("masters replaced").or_insert(0) += 1;
            }
        }
        let kinds: Vec<_> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        kinds.join(", ")
    }

    /// Removes the logs.
    pub fn forget(&self) {
        // Fails if the folder was removed already.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, seed) = (&self.verdict, self.seed);
        write!(
            f,
            "faults: {}, {:?}, TENURE_SEED={seed}
  {} grants, {} samples, {} faults: {}
  unfenced: {} writes, {} updates lost
  fenced: {} writes accepted, {} refused as older
  fair queues: {} waits, {} left out as disturbed; {} holding periods exempted
  takeovers from killed holders: {:?}
",
            self.store,
            self.span,
            verdict.grants,
            verdict.samples,
            self.fault_log.len(),
            self.kinds(),
            verdict.bumped,
            self.lost_updates,
            verdict.accepted,
            verdict.refused,
            verdict.waits,
            verdict.disturbed,
            verdict.exempted,
            self.takeovers,
        )?;
        if verdict.findings.is_empty() {
            return writeln!(f, "  no findings");
        }
        for fault in &self.fault_log {
            let (from, to) = (fault.from.as_nanos(), fault.to.as_nanos());
            writeln!(f, "  {from} to {to}: {:?}: {}", fault.scope, fault.what)?;
        }
        for finding in &verdict.findings {
            writeln!(f, "{:?}: {}", finding.law, finding.what)?;
        }
        let (count, folder) = (verdict.findings.len(), self.folder.display());
        writeln!(
            f,
            "{count} findings; the logs are in {folder}; TENURE_SEED={seed} injects the same faults again"
        )
    }
}
