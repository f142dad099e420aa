//! The promises of the engine, each with a test, over the memory store on a simulated clock.
//! `tenure-testkit` has the suite that every store passes.

mod adopted_calls;
mod at_least;
mod cancel_safety;
mod close;
mod edge_cases;
mod fair;
mod faulty_backend;
mod first_renewal;
mod fixture;
mod hand_over;
mod linger;
mod local_deadline;
mod locks;
mod loss;
mod multi;
mod owner;
mod panics;
mod public_types;
mod races;
mod scope;
mod telemetry;
mod transient_errors;
mod unpolled_waiters;
