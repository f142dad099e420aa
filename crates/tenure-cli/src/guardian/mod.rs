//! The guardian: a second small process that stops a command before its lock can be granted to another client.
//!
//! Three processes run the same binary; `argv[0]` says which one a process is:
//!
//! ```text
//! tenure                [`Supervisor`]: holds the lock, renews it, and sends each new deadline
//!  └ tenure-guardian    `guardian_process`: parent and subreaper of the command; acts on the deadline
//!     └ tenure-stub     `stub`: asks to be killed with its parent, then becomes the command (`exec`)
//! ```
//!
//! # Algorithm
//!
//! `tenure` and the guardian exchange one JSON object per line over a socket pair (`protocol`). The guardian knows a
//! deadline and a process tree, but no key, lease or store. It starts the stub at once, so that the stub is ready when
//! the lock is granted. It passes through these states:
//!
//! ```text
//!                 Arm                      Start                      leader ended
//!  unarmed ------------------> armed ----------------> running ---------------------------+
//!     |                          |                     |  ^  |                            |
//!     | Start                    | Start after         |  +--+ Arm: a renewal moves       |
//!     v                          | the deadline        |       the deadline               v
//!  refused <---------------------+                     |       Waive: no deadline      killing --> ended
//!                                   TERM is due (Stop, |                                  ^
//!                                   or the deadline)   v                                  |
//!                                                  stopping ------------------------------+
//!                                                  TERM sent       KILL is due, or leader ended
//! ```
//!
//! - The deadline consists of two times, of TERM and of KILL, computed from the lock's local deadline (`deadline`).
//!   It is set before the command starts. Each renewal moves it. `Stop` (lock lost, `--max-hold`) sets an earlier
//!   one.
//! - `Start` gives the stub its command line. At `Go`, which often follows at once, the guardian checks the deadline again,
//!   and refuses the start if it has passed. Otherwise the stub gets the standard input and becomes the command. Only
//!   then `Waive` may remove the deadline: no command begins after its lock was lost.
//! - Until the guardian has reported the stub, `tenure` cancels the start, by killing the guardian, if the lock is lost or
//!   a signal asks `tenure` to end. It also cancels a start that the guardian has not answered by the deadline.
//! - A stop is final: a renewal that succeeds after TERM does not save the command.
//! - If `tenure` dies, its socket closes, and the guardian goes to `killing` at once.
//! - `killing` sends KILL to every descendant and repeats until no child is left, or only processes of other users
//!   (`sweep`). The guardian is a subreaper, so processes whose parents die become its children, even after `setsid`.
//!   The leader, the command's first process, is reaped last: until then no other process can get its id
//!   (`process_tree`).
//! - `tenure` watches the guardian in turn. If the guardian dies, or has not reported KILL 50 ms after KILL was due,
//!   `tenure` kills the guardian and the command's processes (`Supervisor`). If `tenure` and the guardian are both
//!   killed, only the leader is sure to die: the stub has asked the kernel for a parent-death signal.
//! - `tenure` and the guardian keep to the caller's job control: they hand over the terminal and take it back
//!   (`terminal`), and stop and continue together with the command (`job_control`).

mod clock;
mod deadline;
mod entry;
mod guardian_process;
mod helper;
mod job_control;
mod process_tree;
mod protocol;
mod signals;
mod start_error;
mod stdin_passing;
mod stub;
mod supervisor;
mod sweep;
mod terminal;

pub use clock::now;
pub(crate) use clock::{LONGEST_SLEEP, reached};
pub use deadline::{Deadline, StopReason};
pub use entry::run_helper;
pub use helper::own_binary;
pub use protocol::{Ended, Launch, Recipient, Status};
pub use signals::{Inbox, handle_file_size_limit};
pub use start_error::StartError;
pub use stdin_passing::send_stdin;
pub use supervisor::{Event, Supervisor};
