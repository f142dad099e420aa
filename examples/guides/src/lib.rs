//! Compiles and runs the code of `docs/guides`, each guide as the documentation of a module.
//! Not here: their commands, which `tests/commands.rs` runs.

mod choosing_a_lock;
mod coming_from_flock;
mod coming_from_redisson;
mod what_a_lock_cannot_do;
