//! What the command prints: events of `hold`, objects and tables of `ls` and `show`.
//! Where it goes, and when, is the verbs'.

mod event;
mod paper;
mod status;
mod table;

pub use event::{Acquired, Cause, Event, Member};
pub use paper::{ms, object, print};
pub use status::{Holder, KeyStatus, Waiter};
pub use table::{list, show};
