//! Tests for authors of Tenure stores: conformance suite, chaos, history checker, simulated clock.
//! The engine, and every store but the ones in this crate's own tests, live elsewhere: this knows the contract alone.
//!
//! - [`conformance!`] and [`conformance_under_chaos!`] turn one line into a named test for each sentence of the
//!   contract, on a store that a [`Subject`] makes for each.
//! - [`agrees_with_the_model!`] lets claims walk through the store at random, and holds every answer against the
//!   contract.
//! - [`Chaos`] puts any backend into bad [`Weather`], by a seed; [`FaultyBackend`] takes any other hook.
//! - [`Recorder`] writes down what happened to locks, and [`check`] finds out whether they ever failed.
//! - [`ManualClock`], [`SimClock`] and [`JumpingClock`] let a test decide what time it is.
//!
//! The tutorial of `tenure-backend` ends in a whole store with its subject.

mod belief;
mod chaos;
mod checker;
mod clock;
mod dice;
mod faulty;
mod history;
mod log;
mod macros;
pub mod model;
mod subject;
#[expect(clippy::missing_panics_doc, reason = "a case reports a failure by panicking")]
pub mod suite;
mod violation;

pub use chaos::{Chaos, Weather};
pub use checker::check;
pub use clock::{JumpingClock, ManualClock, SimClock};
pub use dice::Dice;
pub use faulty::{Exchange, Faults, FaultyBackend, Reply, Request, When};
pub use history::{Event, Recorder, What};
pub use log::ParseEventError;
pub use subject::{Ailment, Door, Slow, Subject};
pub use violation::{Rule, Summary, Violation};
