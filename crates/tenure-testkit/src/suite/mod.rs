//! The conformance suite: each case checks one rule of the contract on a store of its own.
//!
//! Authors of stores run it with [`conformance!`](crate::conformance). The cases are public, so that authors can read
//! them and run one alone. Cases adapt to the store's profile: for a feature that the profile does not list, the case
//! checks that the store refuses it without effect.
//!
//! # Cancel safety
//! A case that is dropped leaves its claims to expire, in a store that no other case uses.

/// Ends a case if its rule does not apply to the store. The condition calls a function that, before it returns true,
/// asserts what the store must do instead.
macro_rules! skip_if {
    ($condition:expr) => {
        if $condition {
            return;
        }
    };
}

mod assertions;
mod client;
mod clients;
mod fixture;
mod requests;
mod run;
mod shown;
mod sleeper;

pub mod claim;
pub mod fence;
pub mod fifo;
pub mod lease;
pub mod mutual;
pub mod refuse;
pub mod successor;
pub mod turn;
pub mod watch;

pub use client::TestClient;
pub use fixture::Fixture;
pub(crate) use fixture::permits;
pub use requests::ReleaseOutcome;
pub(crate) use requests::{eviction_request, release_request, renew_request};
pub(crate) use run::runtime;
pub use run::{Case, all, run, run_under_chaos};
pub use shown::shown;
