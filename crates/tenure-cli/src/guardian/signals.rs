//! Signals to `tenure` and to its guardian.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use signal_hook::consts::{
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGXFSZ,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the caller of `tenure` had set to "ignore", as `nohup` does with HUP.
///
/// Read once, before this process installs a handler for such a signal. Empty where the system has no /proc.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ignored {
    mask: u64,
}

impl Ignored {
    pub(super) fn by_our_caller() -> io::Result<Ignored> {
        static IGNORED: OnceLock<Ignored> = OnceLock::new();
        if let Some(ignored) = IGNORED.get() {
            return Ok(*ignored);
        }
        let ignored = Ignored::read()?;
        Ok(*IGNORED.get_or_init(|| ignored))
    }

    fn read() -> io::Result<Ignored> {
        const STATUS: &str = "/proc/self/status";
        let status = match std::fs::read_to_string(STATUS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{STATUS}: {error}"))),
            Ok(status) => status,
        };
        let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = field.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        Ok(Ignored {
            mask: mask.unwrap_or(0),
        })
    }

    pub(super) fn contains(self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.mask >> (signal - 1) & 1 == 1
    }
}

/// Makes the guardian survive the signals that a terminal, a shell or `pkill tenure` may send.
///
/// Installs handlers that do nothing. Unlike "ignore", a handler is reset by `exec`, so the command starts with the
/// signal actions that the caller of `tenure` had set. A signal that the caller ignored gets no handler, and so stays
/// ignored. Two signals always have their default action in the command: PIPE, because the standard library resets
/// it, and CHLD, because `tenure` always installs a handler for CHLD: it could not wait for its children otherwise.
pub(super) fn ignore_terminal_signals() -> io::Result<()> {
    install_empty_handlers(&[
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2, SIGTTIN, SIGTTOU,
    ])
}

/// Makes a write beyond the process's file size limit fail with an error. Without a handler, XFSZ ends the process.
///
/// # Errors
/// If the handler cannot be installed.
pub fn handle_file_size_limit() -> io::Result<()> {
    install_empty_handlers(&[SIGXFSZ])
}

fn install_empty_handlers(signals: &[i32]) -> io::Result<()> {
    let ignored = Ignored::by_our_caller()?;
    for signal in signals.iter().filter(|signal| !ignored.contains(**signal)) {
        signal_hook::flag::register(*signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Receives the signals that `tenure` acts on: INT, TERM, HUP, QUIT, USR1 and USR2, or those of job control.
///
/// A signal that the caller of `tenure` had set to "ignore" stays ignored (`nohup tenure run …`).
#[derive(Debug)]
pub struct Inbox {
    streams: Vec<(i32, Signal)>,
}

impl Inbox {
    /// Installs a handler for each of INT, TERM, HUP, QUIT, USR1 and USR2 that is not ignored.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn open() -> io::Result<Inbox> {
        Inbox::listen(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])
    }

    pub(super) fn listen(signals: &[i32]) -> io::Result<Inbox> {
        let ignored = Ignored::by_our_caller()?;
        let heard = signals
            .iter()
            .copied()
            .filter(|&number| !ignored.contains(number));
        let streams = heard.map(|number| Ok((number, signal(SignalKind::from_raw(number))?)));
        Ok(Inbox {
            streams: streams.collect::<io::Result<_>>()?,
        })
    }

    /// Waits for the next signal and returns its number. Waits for ever if all are ignored.
    ///
    /// # Cancel safety
    /// Dropping the future loses no signal.
    pub async fn recv(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
