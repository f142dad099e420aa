//! The load: many buyers at once, the trials that they are put through, and the books that come of it.
//! Not here: how a shop sells.

mod crowd;
mod http;
mod pause;
mod run;
mod table;
mod trial;
mod wait;

pub(crate) use run::run;
