//! Tests of the engine's promises, on the memory store with a simulated clock. The suite that every store passes is in
//! `tenure-testkit`.

mod adopted_calls;
mod at_least;
mod cancel_safety;
mod close;
mod downgrade;
mod edge_cases;
mod fair;
mod faulty_backend;
mod first_renewal;
mod fixture;
mod hand_over;
mod invalidations;
mod linger;
mod local_deadline;
mod lock_limit;
mod locks;
mod loss;
mod multi;
mod owner;
mod panics;
mod public_types;
mod races;
mod renewals;
mod scope;
#[cfg(feature = "metrics")]
mod telemetry;
mod transient_errors;
mod unpolled_waiters;
