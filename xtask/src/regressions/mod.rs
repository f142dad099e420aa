//! `cargo xtask regressions`: the page that says which test guards against which bug that others have shipped.
//! Not here: the tests; their comments name the bugs.

mod bugs;
mod page;
mod scan;

pub(crate) use page::write;
