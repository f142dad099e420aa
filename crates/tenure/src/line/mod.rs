//! The local queue of one key: who of this client holds it, who waits, and who talks to the store for them.
//!
//! Unfair waiters queue here in memory, and at most one of them talks to the store. Claims that queue in the store
//! have tasks of their own, and only their grants are noted here. How the store is asked is `seek`'s, and the
//! driver's loop is `drive`'s.

mod driving;
mod entry;
mod handover;
mod state;

pub(crate) use driving::Step;
pub(crate) use entry::Enter;
pub(crate) use handover::Exit;
pub(crate) use state::Line;
