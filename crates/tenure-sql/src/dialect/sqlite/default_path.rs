//! Where the lock file of a user lies when none is named.

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

use crate::display::display_path;

/// How long the user database may take to answer.
const SOON: Duration = Duration::from_secs(2);

/// The lock file of this user on this machine, for programs that name none.
///
/// `$XDG_STATE_HOME/tenure/locks.db`, or `~/.local/state/tenure/locks.db`. Where `HOME` is not set the user
/// database is asked, if need be by `getent`, which has two seconds. Nothing is made here; [`open`](super::open) makes the
/// directory, for this user alone (0700).
///
/// # Errors
/// [`Fault::Invalid`] where this user has no home: name a file.
///
/// # Examples
/// ```
/// let path = tenure_sql::sqlite::default_path().unwrap();
/// assert!(path.ends_with("tenure/locks.db"));
/// ```
pub fn default_path() -> Result<PathBuf, BackendError> {
    state_home().or_else(|| Some(home()?.join(".local/state"))).map(locks).ok_or_else(|| {
        BackendError::new(
            Fault::Invalid,
            Effect::None,
            "this user has no home directory to keep a lock file in: name one, such as sqlite:/var/lib/me/locks.db",
        )
    })
}

/// The lock file under the home directory, if `XDG_STATE_HOME` makes [`default_path`] another one and it exists.
///
/// Programs with and without that variable in their environment do not exclude each other.
///
/// # Examples
/// ```
/// if let Some(other) = tenure_sql::sqlite::shadowed_path() {
///     eprintln!("there is another lock file: {}", other.display());
/// }
/// ```
pub fn shadowed_path() -> Option<PathBuf> {
    let chosen = locks(state_home()?);
    let other = locks(home()?.join(".local/state"));
    (other != chosen && other.exists()).then_some(other)
}

fn locks(state: PathBuf) -> PathBuf {
    state.join("tenure").join("locks.db")
}

/// A relative path in the variable is to be ignored, says the XDG base directory specification.
fn state_home() -> Option<PathBuf> {
    let set = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    set.filter(|path| path.is_absolute())
}

fn home() -> Option<PathBuf> {
    let set = env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    set.or_else(|| {
        let user = rustix::process::getuid().as_raw();
        let listed = fs::read_to_string("/etc/passwd")
            .ok()
            .and_then(|users| home_in(&users, user));
        listed.or_else(|| home_in(&ask_for(user)?, user))
    })
}

/// The user's line from every source that this machine is set up to ask, such as a directory server.
fn ask_for(user: u32) -> Option<String> {
    let mut asked = Command::new("getent")
        .arg("passwd")
        .arg(user.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdout = asked.stdout.take()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut answer = String::new();
        // Whoever asked may have gone.
        let _ = tell.send(stdout.read_to_string(&mut answer).is_ok().then_some(answer));
    });
    let answer = told.recv_timeout(SOON).ok().flatten();
    // A directory server that does not answer would keep it.
    let _ = asked.kill();
    let _ = asked.wait();
    answer
}

/// The home directory of a user in the format of `/etc/passwd`.
fn home_in(users: &str, user: u32) -> Option<PathBuf> {
    let home = |line: &str| {
        let mut fields = line.split(':');
        let number: u32 = fields.nth(2)?.parse().ok()?;
        let home = PathBuf::from(fields.nth(2)?);
        (number == user && home.is_absolute()).then_some(home)
    };
    users.lines().find_map(home)
}

/// Makes the directory of the default file, and whatever is missing above it, for this user alone.
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
    fn a_home_is_found_in_the_user_database_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000:,,,:/home/me:/bin/sh\nbad:x:1001:1001::none:/bin/sh\n";
        assert_eq!(home_in(users, 1000), Some(PathBuf::from("/home/me")));
        assert_eq!(home_in(users, 1001), None);
        assert_eq!(home_in(users, 7), None);
        assert_eq!(home_in("garbage\n::\n", 0), None);
    }
}
