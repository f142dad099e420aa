#![doc = include_str!("../../docs/telemetry.md")]

mod meters;
pub mod names;
mod spans;

pub(crate) use meters::{Meters, Outcome, Rounds};
pub(crate) use spans::{acquiring, granted, holding, renewing};
