//! When a process is asked to stop.
//! Not here: what it does then.

use std::future::pending;
use std::io;

use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn asked() {
    let terminated = async {
        signal(SignalKind::terminate())?.recv().await;
        Ok::<_, io::Error>(())
    };
    let asked = tokio::select! {
        asked = ctrl_c() => asked,
        asked = terminated => asked,
    };
    if let Err(error) = asked {
        eprintln!("this process cannot be asked to stop: {error}");
        pending().await
    }
}
