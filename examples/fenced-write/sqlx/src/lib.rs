//! The story of `fenced-write` with sqlx: a table that refuses the writes of old holders, and the process that holds.
//! Not here: the story itself, which is the same file.

mod holder;
mod ledger;
#[path = "../../src/story.rs"]
mod story;

pub use holder::hold;
pub use ledger::{Ledger, Writer};
pub use story::{Ending, play};
