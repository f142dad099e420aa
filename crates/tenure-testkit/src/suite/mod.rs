//! The conformance suite: each case is one sentence of the contract, tried on a store that is made for it.
//!
//! Authors run it with [`conformance!`](crate::conformance); the cases are public to be read, and to be run one by
//! one. A case looks at the store's profile: what a store does not serve it must refuse without effect, which is
//! then the case.
//!
//! # Cancel safety
//! A case that is dropped leaves its claims to their leases, in a store that was made for it alone.

/// Ends a case at once on a store that its sentence is not about: the condition has seen what such a store does instead.
macro_rules! skip_if {
    ($condition:expr) => {
        if $condition {
            return;
        }
    };
}

mod client;
mod departed;
mod run;
mod trial;

pub mod claim;
pub mod fence;
pub mod fifo;
pub mod late;
pub mod lease;
pub mod mutual;
pub mod refuse;
pub mod taker;
pub mod watch;

pub use client::Client;
pub(crate) use client::renewal;
pub use departed::Departed;
pub(crate) use departed::{departure, eviction};
pub(crate) use run::runtime;
pub use run::{Case, all, run, run_under_chaos};
pub use trial::Trial;
pub(crate) use trial::permits;
