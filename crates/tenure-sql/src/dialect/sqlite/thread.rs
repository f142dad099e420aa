//! Starts the thread that opens and serves a lock file. The work needs a thread, not a task, because calls of SQLite
//! block.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Instant;

use rusqlite::Connection;
use tenure_backend::{BackendError, Effect, Fault};
use tokio::sync::oneshot;

use super::mailbox::{CloseOnDrop, Mailbox};
use super::origin::Origin;
use super::worker::{Worker, blocked};
use super::{busy, connection, file, paths, validate, version};
use crate::config::Config;
use crate::display::display_path;

/// Starts the thread that serves the file, and waits until it has opened the file.
pub(super) async fn start(
    path: Option<PathBuf>,
    config: Config,
    mailbox: Arc<Mailbox>,
) -> Result<(), BackendError> {
    let (ready, opened) = oneshot::channel();
    let run = move || {
        reserve_memory();
        let _close_on_drop = CloseOnDrop(mailbox.clone());
        match open(path, &config) {
            Ok((path, connection)) => {
                let closed = match Worker::new(&path, &connection, &config, mailbox) {
                    Ok(worker) => {
                        // Sending fails if the caller dropped its future. The store is then dropped too, which closes
                        // the mailbox, and `run` returns at once.
                        let _ = ready.send(Ok(()));
                        worker.run()
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        Vec::new()
                    }
                };
                connection::close(&path, connection);
                closed.into_iter().for_each(|pending| pending.answer(Ok(())));
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    };
    let thread = thread::Builder::new().name("tenure-sqlite".to_owned()).spawn(run);
    thread.map_err(|error| {
        let message = "no thread can be started in this process: end some, or raise its limit";
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    opened.await.unwrap_or_else(|_| {
        let message = "the thread that opens the lock file ended unexpectedly: please report it";
        Err(BackendError::new(Fault::Store, Effect::Unknown, message))
    })
}

/// Makes the allocator get memory for this thread in one piece. Otherwise glibc's allocator would get it page by page, in
/// 30 system calls, while SQLite opens the file.
fn reserve_memory() {
    // Less than 128 KiB, because glibc maps each allocation of that size separately.
    drop(black_box(Vec::<u8>::with_capacity(120 << 10)));
}

/// Limits the warning about an old SQLite to one per process.
static WARNED: Once = Once::new();

/// Returns the origin of this process's clock. Refuses the file if its times cannot be compared with that clock.
fn origin(path: &Path) -> Result<Origin, BackendError> {
    let here = Origin::here().map_err(|error| {
        let message = format!(
            "the lock file {} cannot be used, since this process's clock cannot be compared with that of its times: \
             see the cause below",
            display_path(path)
        );
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    here.check(path)?;
    Ok(here)
}

fn open(path: Option<PathBuf>, config: &Config) -> Result<(PathBuf, Connection), BackendError> {
    let path = match path {
        Some(path) => path,
        None => {
            let path = paths::default_path()?;
            origin(&path)?;
            paths::make_directory_of(&path)?;
            path
        }
    };
    let path = file::resolve(&path)?;
    version::warn(rusqlite::version_number(), &WARNED);
    let here = origin(&path)?;
    busy::set_deadline(Instant::now(), config.busy_limit);
    let found = file::prepare(&path)?;
    let connection = validate::open(&path, found, config, &here).map_err(|error| {
        if error.is_transient() {
            blocked(&path, config.busy_limit, error)
        } else {
            error
        }
    })?;
    Ok((path, connection))
}
