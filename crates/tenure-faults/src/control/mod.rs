//! The controller: it starts workers, makes misfortune, and sees whether all comes right again.

mod calm;
mod crew;
mod deeds;
mod misfortune;
mod sight;

pub(crate) use calm::{everybody_gets_a_lock, nothing_is_left, somebody_takes_over};
pub(crate) use crew::{Crew, Worked};
pub(crate) use deeds::{Deed, Whom};
pub(crate) use misfortune::strike;
pub(crate) use sight::Sight;
