//! The group `claim`: the life of a claim, batches, eviction, and `inspect`.

mod batch;
mod evict;
mod inspect;
mod life;

pub use batch::*;
pub use evict::*;
pub use inspect::*;
pub use life::*;
