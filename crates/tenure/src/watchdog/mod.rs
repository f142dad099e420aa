//! The client's own task: renews what is held, takes over calls that nobody polls, and runs what callers leave
//! behind. One for each client, started by its first attempt.

mod calls;
mod life;
mod renewal;
mod rounds;
mod wheel;

pub(crate) use calls::TakeOver;
pub(crate) use life::{Busy, Watchdog};
pub(crate) use wheel::{Mark, Marked};
