//! The judgement on what all workers saw.

mod exemptions;
mod finding;
mod history;
mod order;
mod pardon;
mod report;
#[cfg(test)]
mod tests;
mod trial;

pub use finding::{Finding, Law};
pub use report::Report;
pub(crate) use trial::judge;
