//! Random walks: random requests to a store, whose replies are compared with a model of the contract.
//!
//! Authors of stores run them with [`agrees_with_the_model!`](crate::agrees_with_the_model). A walk places, polls,
//! renews, releases, hands over and evicts claims of several clients on two keys, and lets time pass. The model checks
//! that the contract allows each reply, and what `inspect` shows afterwards. Which claims may hold a key together is
//! decided by [`Mode::admits`](tenure_backend::Mode::admits). The conformance suite covers wake-ups, listings and
//! faults.

mod key_state;
mod plan;
mod release;
mod renewal;
mod run;
mod state;
mod walk;

pub use run::walks;
