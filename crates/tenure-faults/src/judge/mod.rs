//! Checks the logs of all workers, with exemptions for injected faults, and reports.

mod attempts;
mod exemptions;
mod finding;
mod report;
#[cfg(test)]
mod tests;
mod verdict;

pub use finding::{Finding, Law};
pub use report::Report;
pub use verdict::Verdict;
pub(crate) use verdict::judge;
