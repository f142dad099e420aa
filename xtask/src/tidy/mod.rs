//! `cargo xtask tidy`: the rules that no compiler checks.
//! Not here: any rule; each has its file.

mod arrows;
mod declarations;
mod doors;
mod finding;
mod header;
mod manifest;
mod msrv;
mod names;
mod promises;
mod reasons;
mod run;
mod scrub;
mod source;
mod width;
mod words;

pub(crate) use run::run;
