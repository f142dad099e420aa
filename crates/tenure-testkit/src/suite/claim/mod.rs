//! The group `claim`: a claim's life, its eviction, and what is shown of it.
//! Ends by time are in `lease.rs`.

mod batch;
mod evict;
mod inspect;
mod life;

pub use batch::*;
pub use evict::*;
pub use inspect::*;
pub use life::*;
