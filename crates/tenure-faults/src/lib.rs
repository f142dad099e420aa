#![doc = include_str!("../README.md")]

mod attempts;
mod control;
mod journal;
mod judge;
mod keys;
mod line;
mod plant;
mod register;
mod run;
mod schedule;
mod store;
mod worker;

pub use judge::{Finding, Law, Report};
pub use plant::Plant;
pub use run::Run;
pub use schedule::Menu;
pub use store::Store;
pub use worker::{Args, work};
