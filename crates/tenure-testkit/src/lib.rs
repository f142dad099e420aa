//! Tests for authors of Tenure stores: conformance suite, fault injection, history checker, test clocks.
//!
//! - [`conformance!`] and [`conformance_under_chaos!`] expand to one named test for each case of the conformance
//!   suite. Each test runs on a fresh store, which a [`Subject`] makes.
//! - [`agrees_with_the_model!`] sends random requests to the store and compares every reply with a model of the
//!   contract.
//! - [`Chaos`] injects random faults between a client and any backend, at given [`FaultRates`] and from a seed. It is
//!   built on the decorator [`FaultyBackend`], which tests that choose their faults use directly.
//! - [`Recorder`] records the events of locks as a history, and [`check`] searches a history for violations of mutual
//!   exclusion, fencing and order.
//! - [`ManualClock`], [`SimClock`] and [`JumpingClock`] are clocks that a test controls.
//!
//! The tutorial of `tenure-backend` ends with a complete store and its subject. This crate depends on the contract
//! alone, not on the engine.

mod chaos;
mod checker;
mod clock;
mod dice;
mod faulty;
mod history;
mod holders;
mod log;
mod macros;
pub mod model;
mod subject;
#[expect(clippy::missing_panics_doc, reason = "a case reports a failure by panicking")]
pub mod suite;
mod violation;

pub use chaos::{Chaos, FaultRates};
pub use checker::check;
pub use clock::{JumpingClock, ManualClock, SimClock};
pub use dice::Dice;
pub use faulty::{Exchange, Faults, FaultyBackend, Reply, Request, When};
pub use history::{Event, EventKind, Recorder};
pub use log::ParseEventError;
pub use subject::{Link, SlowClient, StoreFailure, Subject};
pub use violation::{Rule, Summary, Violation};
