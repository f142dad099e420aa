//! `cargo xtask tidy`: the rules that no compiler, lint or `cargo deny` checks.

mod arrows;
mod cycles;
mod packages;
mod run;
mod text;

pub(crate) use run::run;
