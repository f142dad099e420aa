//! What a run has shown, for people.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::finding::Law;
use super::trial::Verdict;
use crate::control::Deed;

/// What a run has shown.
#[derive(Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) store: String,
    pub(crate) span: Duration,
    /// Where the logs are.
    pub(crate) folder: PathBuf,
    /// What was done, in order.
    pub(crate) deeds: Vec<Deed>,
    /// What was found, and what it was found in.
    pub verdict: Verdict,
    pub(crate) takeovers: Vec<Duration>,
    /// Updates that the unfenced counters lost, at least.
    pub lost_updates: u64,
}

impl Report {
    /// Whether a law was broken.
    pub fn breaks(&self, law: Law) -> bool {
        self.verdict.findings.iter().any(|finding| finding.law == law)
    }

    /// Prints the report, and removes the logs if nothing was found.
    ///
    /// # Panics
    /// If something was found: with all of it, the seed, what was done, and where the logs are.
    pub fn expect_clean(self) -> Report {
        assert!(self.verdict.findings.is_empty(), "{self}");
        println!("{self}");
        self.forget();
        self
    }

    /// Removes the logs.
    pub fn forget(&self) {
        // Whoever else removes them is as welcome.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, seed) = (&self.verdict, self.seed);
        write!(
            f,
            "faults: {}, {:?}, TENURE_SEED={seed}
  {} grants, {} samples, {} faults
  unfenced: {} writes, {} updates lost
  fenced: {} writes accepted, {} refused as older
  fair queues: {} waits, {} left out as disturbed; {} beliefs pardoned
  takeovers from killed holders: {:?}
",
            self.store,
            self.span,
            verdict.grants,
            verdict.samples,
            self.deeds.len(),
            verdict.bumped,
            self.lost_updates,
            verdict.accepted,
            verdict.refused,
            verdict.waits,
            verdict.disturbed,
            verdict.pardoned,
            self.takeovers,
        )?;
        if verdict.findings.is_empty() {
            return writeln!(f, "  nothing was found");
        }
        for deed in &self.deeds {
            let (from, to) = (deed.from.as_nanos(), deed.to.as_nanos());
            writeln!(f, "  {from} to {to}: {:?}: {}", deed.whom, deed.what)?;
        }
        for finding in &verdict.findings {
            writeln!(f, "{:?}: {}", finding.law, finding.what)?;
        }
        let (count, folder) = (verdict.findings.len(), self.folder.display());
        writeln!(
            f,
            "{count} findings; the logs are in {folder}; TENURE_SEED={seed} makes the same misfortune again"
        )
    }
}
