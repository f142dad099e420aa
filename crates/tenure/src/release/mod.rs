//! Giving a claim back: polled in place by `unlock`, seen through by the client's own task when nobody waits.

mod departing;
mod in_place;
mod tries;

pub(crate) use departing::{Departing, see_through_together};
pub(crate) use tries::{Left, backoff};
