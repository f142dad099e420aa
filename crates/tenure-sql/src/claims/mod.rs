//! The claim logic: what a verb decides, given the rows of one key.
//! No SQL, no clock and no I/O live here: a transaction reads a [`View`], lets a verb change it, and writes what changed.

mod acquire;
mod inspect;
mod release;
mod renew;
mod row;
mod view;
mod watch;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use acquire::acquire;
pub(crate) use inspect::PageBuilder;
pub(crate) use release::release;
pub(crate) use renew::renew;
pub(crate) use row::{Phase, Row};
pub(crate) use view::{Change, Moment, View};
pub(crate) use watch::{NextPoll, REFRESH, next_poll, unwatch, watch};
