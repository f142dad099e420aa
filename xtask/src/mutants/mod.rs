//! `cargo xtask mutants`: plants known bugs one at a time, and fails if the tests let one live.
//! Not here: the bugs themselves; they are the tables in `table/`.

mod mutant;
mod options;
mod report;
mod run;
mod table;
mod trial;
mod work_copy;

pub(crate) use run::run;
