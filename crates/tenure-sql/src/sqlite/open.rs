//! Opens a lock file as a store: starts the thread that opens and serves the file. The work needs a thread, not a task,
//! because calls of SQLite block.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tenure_backend::{BackendError, Clock, Effect, Fault};
use tokio::sync::oneshot;

use super::access::{self, Intent};
use super::backend::SqliteStore;
use super::config::Config;
use super::file::{Contents, refused};
use super::mailbox::{CloseOnDrop, Mailbox};
use super::names::display_path;
use super::origin::{Origin, UnknownOrigin};
use super::reader::Reader;
use super::request::Pending;
use super::siblings::with_siblings;
use super::worker::{Worker, blocked};
use super::{busy, connection, error, file, paths, sharing, validate};

/// Opens a lock file, and creates it if it does not exist.
///
/// `None` opens the default file of this user, see [`default_path`](super::default_path). An existing file must be
/// empty or a lock file of Tenure. Any other file is refused and left unchanged.
///
/// # Guarantees
/// All access to the file runs on a thread of its own, which ends when the store is dropped. Any number of processes
/// may open the same file, and one process may open it several times.
///
/// # Cancel safety
/// Dropping the future leaves at most a lock file without claims behind.
///
/// # Errors
/// Each error says what to do.
///
/// - [`Fault::Store`]: the file is damaged, of another program or machine, on a read-only file system, in use in another
///   time namespace, on a network file system, not a regular file, or has several names.
/// - [`Fault::Denied`]: this user may not use the file. The message names the file or directory, its owner and its mode.
/// - [`Fault::Unavailable`]: another process keeps the file locked. Try again.
/// - [`Fault::Invalid`]: no file was named, and this user has no home directory.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), tenure_backend::BackendError> {
/// use std::sync::Arc;
/// use tenure_backend::SystemClock;
///
/// let store = tenure_sql::sqlite::open(None, Arc::new(SystemClock)).await?;
/// # drop(store); Ok(()) }
/// ```
pub async fn open(path: Option<PathBuf>, clock: Arc<dyn Clock>) -> Result<Arc<SqliteStore>, BackendError> {
    let config = Config {
        clock,
        ..Config::default()
    };
    open_with(path, config).await
}

/// Opens a lock file like [`open`], with other settings.
///
/// # Cancel safety
/// As for [`open`]: dropping the future leaves at most a lock file without claims behind.
///
/// # Errors
/// As for [`open`]; [`Fault::Invalid`] also for a [`Config::file_mode`] that a lock file cannot have.
pub async fn open_with(path: Option<PathBuf>, config: Config) -> Result<Arc<SqliteStore>, BackendError> {
    config.check()?;
    let mailbox = Mailbox::new(config.max_queue).map_err(|error| {
        let message = "no more files can be opened in this process: close some, or raise its limit";
        BackendError::because(Fault::Store, Effect::None, message, error)
    })?;
    let store = Arc::new(SqliteStore {
        mailbox: Arc::new(mailbox),
        clock: config.clock.clone(),
        process: std::process::id(),
    });
    start(path, config, store.mailbox.clone()).await?;
    Ok(store)
}

/// Starts the thread that serves the file, and waits until it has opened the file.
async fn start(path: Option<PathBuf>, config: Config, mailbox: Arc<Mailbox>) -> Result<(), BackendError> {
    let (ready, opened) = oneshot::channel();
    let run = move || {
        reserve_memory();
        let _close_on_drop = CloseOnDrop(mailbox.clone());
        let ready = |opened| {
            // Sending fails if the caller dropped its future. The store is then dropped too, which closes the mailbox,
            // and `run` returns at once.
            let _ = ready.send(opened);
        };
        match open_file(path, &config) {
            Ok(opened) => {
                let closed = opened.serve(&config, mailbox, ready);
                closed.into_iter().for_each(|pending| pending.answer(Ok(())));
            }
            Err(error) => ready(Err(error)),
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
    Origin::here().map_err(|unknown| match unknown {
        UnknownOrigin::Offset => {
            let why = "cannot be used in a time namespace whose offsets are not known, or where child processes have \
                       other ones";
            refused(path, why, UnknownOrigin::MAKE_OFFSET_KNOWN)
        }
        UnknownOrigin::Unreadable(error) => {
            let message = format!(
                "the lock file {} cannot be used, since this process's clock cannot be compared with that of its \
                 times: see the cause below",
                display_path(path)
            );
            BackendError::because(Fault::Store, Effect::None, message, error)
        }
    })
}

/// A file that this user can use.
struct Opened {
    path: PathBuf,
    access: OpenedFor,
}

enum OpenedFor {
    Writing(Connection),
    /// This user cannot write the file, for the reason in the error.
    Reading(Origin, BackendError),
}

impl Opened {
    /// Calls `ready` when the file is checked, then serves it until the store is closed. Returns the close requests,
    /// which the caller answers.
    fn serve(
        self,
        config: &Config,
        mailbox: Arc<Mailbox>,
        ready: impl FnOnce(Result<(), BackendError>),
    ) -> Vec<Pending<(), Result<(), BackendError>>> {
        let path = &*self.path;
        match self.access {
            OpenedFor::Writing(connection) => {
                let closed = match Worker::new(path, &connection, config, mailbox) {
                    Ok(worker) => {
                        ready(Ok(()));
                        worker.run()
                    }
                    Err(error) => {
                        ready(Err(error));
                        Vec::new()
                    }
                };
                connection::close(path, connection);
                closed
            }
            OpenedFor::Reading(here, denied) => match Reader::new(path, config, &here, denied) {
                Ok(reader) => {
                    ready(Ok(()));
                    reader.run(&mailbox)
                }
                Err(error) => {
                    ready(Err(error));
                    Vec::new()
                }
            },
        }
    }
}

fn open_file(path: Option<PathBuf>, config: &Config) -> Result<Opened, BackendError> {
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
    connection::warn_of_bug(rusqlite::version_number(), &WARNED);
    let here = origin(&path)?;
    busy::set_deadline(Instant::now(), config.busy_limit);
    let found = file::prepare(&path, config.mode_of_new_file())?;
    if let Err(denied) = access::check(&path, Intent::Write) {
        if config.allow_read_only && found == Contents::NonEmpty {
            let access = OpenedFor::Reading(here, denied);
            return Ok(Opened { path, access });
        }
        return Err(denied);
    }
    warn_about_mode(&path, config);
    let connection = open_for_writing(&path, found, config, &here).map_err(|error| {
        if error.is_transient() {
            blocked(&path, config.busy_limit, error)
        } else {
            error
        }
    })?;
    let access = OpenedFor::Writing(connection);
    Ok(Opened { path, access })
}

/// Number of times to open a file again, every 5 ms, that another process may just have created.
const MAX_REOPENINGS: u32 = 10;

/// Opens the file. If `-wal` or `-shm` is missing, another process may be creating it now, and sets its mode a moment
/// later. SQLite may open such a file for reading only, or not at all, so this function then opens it again.
fn open_for_writing(
    path: &Path,
    found: Contents,
    config: &Config,
    here: &Origin,
) -> Result<Connection, BackendError> {
    let may_be_new = !with_siblings(path).iter().all(|file| file.exists());
    let mut reopenings_left = MAX_REOPENINGS;
    loop {
        let opened = validate::open(path, found, config, here).and_then(|connection| {
            if may_be_new {
                connection::check_write_lock(path, &connection)?;
            }
            Ok(connection)
        });
        match opened {
            Err(error) if reopenings_left > 0 && error::may_have_been_new(&error) => {
                reopenings_left -= 1;
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// Logs a warning if an existing file lacks permissions of `file_mode`, and this user can add them. Not for a program that
/// inspects: it may examine the file, which finds this too.
fn warn_about_mode(path: &Path, config: &Config) {
    let user = rustix::process::geteuid();
    let may_change = || user.is_root() || file::owner(path) == Some(user.as_raw());
    if let Some(mode) = config
        .file_mode
        .filter(|_| !config.allow_read_only && may_change())
        && let Some(problem) = sharing::lacking_mode(path, mode)
    {
        tracing::warn!("{problem}");
    }
}
