//! The guardian: the small second process that holds a command's deadline and ends all that it started.
//! No lock lives here: it is told the deadlines, and knows nothing of keys or stores.
//!
//! Three processes, all of one binary, told apart by `argv[0]`:
//!
//! ```text
//! tenure                the caller's side: [`Supervisor`]; holds the lock, renews, re-arms
//!  └ tenure-guardian    `keeper`: the command's parent and subreaper; holds the deadline
//!     └ tenure-stub     `stub`: ties its life to the guardian's, then becomes the command
//! ```

mod clock;
mod deadline;
mod entry;
mod handover;
mod job;
mod keeper;
mod kin;
mod protocol;
mod signals;
mod start_error;
mod stub;
mod supervisor;
mod sweep;
mod terminal;

pub use clock::now;
pub(crate) use clock::{LONGEST_SLEEP, reached};
pub use deadline::{Deadline, Why};
pub use entry::{own_binary, play_part};
pub use handover::give_stdin;
pub use protocol::{Ended, Launch, Recipient, Status};
pub use signals::{Inbox, survive_file_limits};
pub use start_error::StartError;
pub use supervisor::{Event, Supervisor};
