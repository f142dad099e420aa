#![doc = include_str!("../README.md")]

mod control;
mod fault;
mod judge;
mod keys;
mod log;
mod run;
mod servers;
mod store;
mod worker;

pub use fault::FaultSet;
pub use judge::{Finding, Law, Report, Verdict};
pub use run::Run;
pub use store::Store;
pub use worker::{Args, PlantedBug, work};
