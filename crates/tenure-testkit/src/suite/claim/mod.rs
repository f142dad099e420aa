//! The group `claim`: a claim's life, its eviction, and what is shown of it.
//! Ends by time are in `lease.rs`.
//!
//! # Cancel safety
//! A case that is dropped leaves its claims to their leases, in a store that was made for it alone.

mod batch;
mod evict;
mod inspect;
mod life;

pub use batch::*;
pub use evict::*;
pub use inspect::*;
pub use life::*;
