//! Signals that ask the programs of the examples to stop. Each program includes this file as a module by its path.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens for Ctrl-C and for SIGTERM, by which container runtimes stop programs. The future returns `interrupted` or
/// `terminated`.
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
