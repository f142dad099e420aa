#![doc = include_str!("../../docs/telemetry.md")]

#[cfg_attr(not(feature = "metrics"), path = "no_meters.rs")]
mod meters;
pub mod names;
mod outcome;
mod spans;

pub(crate) use meters::{Meters, Rounds};
pub(crate) use outcome::Outcome;
pub(crate) use spans::{acquiring, granted, holding, renewing};
