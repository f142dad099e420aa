//! All output to stdout: events of `hold`, objects and tables of `ls` and `show`, lines of `watch`.

mod change;
mod event;
mod status;
mod stdout;
mod table;

pub use change::{ChangeEvent, TimedChange, change};
pub use event::{Acquired, Event, EventWriter, Member};
pub use status::{Claimant, Holder, KeyStatus, Waiter};
pub use stdout::{Reader, ms, object, print, print_json_or_text, reader, write};
pub use table::{list, show};
