//! What each verb does: from arguments to an exit code.
//! The command line, the guardian and the shape of what is printed have their own modules.

mod evict;
#[cfg(unix)]
mod hold;
mod keys;
#[cfg(unix)]
mod lock;
mod look;
mod obey;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod stdin;
mod store;
#[cfg(unix)]
mod ward;

pub use obey::obey;
