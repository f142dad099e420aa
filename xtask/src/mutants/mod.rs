//! `cargo xtask mutants`: plants known bugs one at a time, and fails if the tests let one live.

mod patch;
mod run;
mod scratch;

pub(crate) use run::run;
