//! Three parts: a table that can refuse the writes of old holders; the process that each holder runs as; and a
//! demonstration with two holders.

#![allow(
    clippy::missing_errors_doc,
    reason = "any error ends the example with its message"
)]

mod client;
mod holder;
mod ledger;
#[path = "../../process.rs"]
mod process;
mod story;
mod value;

pub use holder::hold;
pub use ledger::{Ledger, Writer};
pub use story::{Ending, play};
pub use value::Value;
