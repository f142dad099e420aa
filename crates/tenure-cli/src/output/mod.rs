//! What the command prints: events of `hold`, objects and tables of `ls` and `show`, lines of `watch`.

mod change;
mod event;
mod paper;
mod status;
mod table;

pub use change::{Seen, change};
pub use event::{Acquired, Event, Member};
pub use paper::{Reader, ms, object, print, reader, tell, write};
pub use status::{Claimant, Holder, KeyStatus, Waiter};
pub use table::{list, show};
