//! The `tenure` command from outside: processes, exit codes and events, on a store of their own in one file.
//! The guardian alone is tried in `tests/guardian`.

#[cfg(unix)]
mod hold;
#[cfg(unix)]
mod look;
#[cfg(unix)]
mod loss;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod scene;
