//! The judgement on what all workers saw.

mod evidence;
mod finding;
mod history;
mod order;
mod pardon;
mod report;
mod trial;

pub(crate) use evidence::Evidence;
pub use finding::{Finding, Law};
pub use report::Report;
pub(crate) use trial::judge;
