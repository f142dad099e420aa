//! The judgement on what all workers saw.

mod attempts;
mod exemptions;
mod finding;
mod report;
#[cfg(test)]
mod tests;
mod trial;

pub use finding::{Finding, Law};
pub use report::Report;
pub use trial::Verdict;
pub(crate) use trial::judge;
