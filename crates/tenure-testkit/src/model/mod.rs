//! Random walks of claims through a store, beside a model of what the contract allows.
//!
//! Authors run them with [`agrees_with_the_model!`](crate::agrees_with_the_model). A walk places, polls, renews,
//! releases, hands over and evicts claims of several clients on two keys, and lets time pass. Every answer, and
//! what `inspect` shows after it, must be one that the contract allows where the walk has come to; who may hold
//! beside whom is [`Mode::admits`](tenure_backend::Mode::admits). Wake-ups, listings and bad weather are the
//! suite's.

mod departure;
mod ledger;
mod renewal;
mod room;
mod run;
mod step;
mod walk;

pub use run::walks;
