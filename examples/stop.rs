//! How the programs of the examples learn that they are to stop. Each takes this file as a module by its path.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens from now on for Ctrl-C and for SIGTERM, which containers send; the future says which of them came.
pub(crate) fn signals() -> io::Result<impl Future<Output = &'static str>> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => "interrupted",
            _ = terminated.recv() => "terminated",
        }
    })
}
