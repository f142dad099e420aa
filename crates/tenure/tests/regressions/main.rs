//! Bugs that lock libraries have shipped, and faults that other tests would overlook, tried on the engine.
//! Not here: what a store must not do, which every store's conformance suite tries; see docs/REGRESSIONS.md.

#[allow(dead_code, reason = "the engine's own tests use the rest of it")]
#[path = "../engine/stage.rs"]
mod stage;
#[allow(dead_code, reason = "the engine's own tests use the rest of it")]
#[path = "../engine/world.rs"]
mod world;

mod belief;
mod fairness;
mod release;
#[cfg(feature = "sqlite")]
mod sqlite;
mod unpolled;
mod wakes;
