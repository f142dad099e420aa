//! The engine's promises, each a test, over the memory store on a clock that tests move.
//! Stores have their own suite: `tenure-testkit`.

mod belief;
mod cancel;
mod close;
mod edges;
mod fair;
mod first_renewal;
mod hazards;
mod kept;
mod linger;
mod locks;
mod loss;
mod multi;
mod owner;
mod panics;
mod passing;
mod promises;
mod scope;
mod stage;
mod taken_over;
mod telemetry;
mod unpolled;
mod weather;
mod world;
