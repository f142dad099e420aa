//! `fenced-write` with sqlx: all is the same but the client of the database.

mod client;
#[path = "../../src/holder.rs"]
mod holder;
#[path = "../../src/ledger.rs"]
mod ledger;
#[path = "../../src/story.rs"]
mod story;

pub use holder::hold;
pub use ledger::{Ledger, Value, Writer};
pub use story::{Ending, play};
