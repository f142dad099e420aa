//! The example `fenced-write` with sqlx. Only the module `client` differs.

mod client;
#[path = "../../src/holder.rs"]
mod holder;
#[path = "../../src/ledger.rs"]
mod ledger;
#[path = "../../../process.rs"]
mod process;
#[path = "../../src/story.rs"]
mod story;
#[path = "../../src/value.rs"]
mod value;

pub use holder::hold;
pub use ledger::{Ledger, Writer};
pub use story::{Ending, play};
pub use value::Value;
