//! The `tenure` command from outside: processes, exit codes and events, on a store of their own in one file.

#[cfg(unix)]
mod completions;
#[cfg(unix)]
mod doctor;
#[cfg(unix)]
mod elect;
#[cfg(unix)]
mod hold;
#[cfg(unix)]
mod language;
#[cfg(unix)]
mod look;
#[cfg(unix)]
mod loss;
#[cfg(unix)]
mod manual;
#[cfg(unix)]
mod objects;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod scene;
#[cfg(unix)]
mod schema;
#[cfg(unix)]
mod stores;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod watch;
