//! The claim logic: what each verb, such as `acquire`, decides from the rows of one key.
//!
//! Pure functions without SQL, clock or I/O. A transaction reads the rows as a [`View`], calls a verb that changes
//! the view, and writes the changes to the table.

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
pub(crate) use watch::{NextPoll, RENEW_INTERVAL, next_poll, unwatch, watch};
