//! A table that refuses the writes of old holders, the process that holds, and the story that they play.
//! Not here: the same with sqlx, which is a package of its own beside this one.

#![allow(
    clippy::missing_errors_doc,
    reason = "any error ends the example with its message"
)]

mod holder;
mod ledger;
mod story;

pub use holder::hold;
pub use ledger::{Ledger, Writer};
pub use story::{Ending, play};
