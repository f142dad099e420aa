//! The default path of the lock file.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault};

use super::names::display_path;
use super::system_files::{if_present, named};

const GETENT_LIMIT: Duration = Duration::from_secs(2);

/// The default lock file of this user, for programs that name none.
///
/// `$XDG_STATE_HOME/tenure/locks.db`, or `~/.local/state/tenure/locks.db`. If `HOME` is no absolute path, the home
/// directory comes from the user database: `/etc/passwd`, or `getent`, which has two seconds to answer. Creates
/// nothing; [`open`](super::open()) creates the directory with mode 0700.
///
/// # Errors
/// [`Fault::Invalid`] if this user has no home directory, or if root's home directory, as `HOME` or `XDG_STATE_HOME`
/// names it, belongs to another user: root's file there would keep out that user's programs. Name a file instead.
/// [`Fault::Store`] if the user database cannot be read.
///
/// # Examples
/// ```
/// let path = tenure_sql::sqlite::default_path().unwrap();
/// assert!(path.ends_with("tenure/locks.db"));
/// ```
pub fn default_path() -> Result<PathBuf, BackendError> {
    let invalid = |message: String| BackendError::new(Fault::Invalid, Effect::None, message);
    let (base, state) = match state_home() {
        Some(state) => (state.clone(), state),
        None => match home()? {
            Some(home) => (home.clone(), home.join(".local/state")),
            None => {
                let message = "this user has no home directory to keep a lock file in: name one, such as \
                               sqlite:/var/lib/me/locks.db";
                return Err(invalid(message.to_owned()));
            }
        },
    };
    if let Some(owner) = other_owner(&base, rustix::process::geteuid().is_root()) {
        return Err(invalid(format!(
            "root runs this program, but {} belongs to user {owner}, whose programs could not use root's lock file \
             there: set HOME to root's home directory, or name a file",
            display_path(&base)
        )));
    }
    Ok(locks(state))
}

/// Returns the owner of the directory, or of its nearest parent that exists, if root would create files there for
/// another user.
fn other_owner(directory: &Path, is_root: bool) -> Option<u32> {
    let owner = directory.ancestors().find_map(super::file::owner)?;
    (is_root && owner != 0).then_some(owner)
}

/// The lock file under the home directory, if it exists and `XDG_STATE_HOME` makes [`default_path`] another file.
///
/// Programs with and without that variable use different files, and so do not exclude each other.
///
/// # Examples
/// ```
/// if let Some(other) = tenure_sql::sqlite::shadowed_path() {
///     eprintln!("there is another lock file: {}", other.display());
/// }
/// ```
pub fn shadowed_path() -> Option<PathBuf> {
    let chosen = locks(state_home()?);
    let other = locks(home().ok()??.join(".local/state"));
    (other != chosen && other.exists()).then_some(other)
}

fn locks(state: PathBuf) -> PathBuf {
    state.join("tenure").join("locks.db")
}

/// `XDG_STATE_HOME`; `None` for a relative path, which the XDG Base Directory Specification says to ignore.
fn state_home() -> Option<PathBuf> {
    let set = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    set.filter(|path| path.is_absolute())
}

/// `HOME`, or else the home directory in the user database; `None` if neither has one.
fn home() -> Result<Option<PathBuf>, BackendError> {
    let set = env::var_os("HOME").map(PathBuf::from);
    match set.filter(|path| path.is_absolute()) {
        Some(home) => Ok(Some(home)),
        None => listed_home().map_err(|error| {
            let message =
                "the home directory of this user cannot be looked up: set HOME, or name a lock file";
            BackendError::because(Fault::Store, Effect::None, message, error)
        }),
    }
}

fn listed_home() -> io::Result<Option<PathBuf>> {
    const TABLE: &str = "/etc/passwd";
    let user = rustix::process::getuid().as_raw();
    let users = if_present(TABLE, fs::read_to_string(TABLE))?;
    let listed = users.and_then(|users| home_in(&users, user));
    Ok(match listed {
        Some(home) => Some(home),
        None => getent(user)?.and_then(|users| home_in(&users, user)),
    })
}

/// Asks `getent` for the line of a user id in the user database. `getent` also queries sources such as a directory
/// server. Returns `None` if the system has no `getent`, or if it does not answer in time.
fn getent(user: u32) -> io::Result<Option<String>> {
    let started = Command::new("getent")
        .arg("passwd")
        .arg(user.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Some(mut child) = if_present("getent", started)? else {
        return Ok(None);
    };
    let stdout = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || {
        let mut answer = String::new();
        let read = stdout.map(|mut stdout| stdout.read_to_string(&mut answer));
        // Sending fails if the receiver is gone, because `getent` has taken longer than its time limit.
        let _ = sender.send(matches!(read, Some(Ok(_))).then_some(answer));
    });
    // If no thread could be started, the sender is gone, and this returns at once.
    let answer = receiver.recv_timeout(GETENT_LIMIT).ok().flatten();
    // Ends a `getent` that still waits for a directory server.
    let _ = child.kill();
    let _ = child.wait();
    reader.map_err(|error| named("the thread that reads the output of getent", &error))?;
    Ok(answer)
}

/// The home directory of a user id. `users` has lines in the format of `/etc/passwd`.
fn home_in(users: &str, user: u32) -> Option<PathBuf> {
    let home = |line: &str| {
        let mut fields = line.split(':');
        let number: u32 = fields.nth(2)?.parse().ok()?;
        let home = PathBuf::from(fields.nth(2)?);
        (number == user && home.is_absolute()).then_some(home)
    };
    users.lines().find_map(home)
}

/// Creates the directory of the default lock file and its missing parents, with mode 0700.
pub(super) fn make_directory_of(path: &Path) -> Result<(), BackendError> {
    let directory = path.parent().unwrap_or(path);
    let make = || -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory)?;
        super::file::set_mode(directory, 0o700)
    };
    if directory.is_dir() {
        return Ok(());
    }
    make().map_err(|error| {
        let message = format!(
            "the directory {} for lock files cannot be made: make it, or name another file",
            display_path(directory)
        );
        BackendError::because(Fault::Store, Effect::None, message, error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_files_are_not_made_in_another_users_directory() {
        let ours = tempfile::tempdir().expect("a directory");
        let owner = super::super::file::owner(ours.path()).expect("it is there");
        let below = ours.path().join("missing/state");
        assert_eq!(other_owner(&below, false), None);
        assert_eq!(other_owner(&below, true), (owner != 0).then_some(owner));
        assert_eq!(other_owner(Path::new("/"), true), None);
    }

    #[test]
    fn a_home_is_found_by_user_id() {
        let users = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000:,,,:/home/me:/bin/sh\nbad:x:1001:1001::none:/bin/sh\n";
        assert_eq!(home_in(users, 1000), Some(PathBuf::from("/home/me")));
        assert_eq!(home_in(users, 1001), None);
        assert_eq!(home_in(users, 7), None);
        assert_eq!(home_in("garbage\n::\n", 0), None);
    }
}
