//! The controller: it starts workers, makes misfortune, and sees whether all comes right again.

mod calm;
mod crew;
mod fault;
mod misfortune;
mod sight;

pub(crate) use calm::{everybody_gets_a_lock, nothing_is_left, somebody_takes_over};
pub(crate) use crew::{Crew, Worked};
pub use fault::Menu;
pub(crate) use misfortune::{Deed, Whom, strike};
