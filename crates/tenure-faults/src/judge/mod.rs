//! The judgement on what all workers saw.

mod evidence;
mod exemptions;
mod finding;
mod history;
mod order;
mod pardon;
mod report;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use evidence::read_all;
pub use finding::{Finding, Law};
pub use report::Report;
pub(crate) use trial::judge;
