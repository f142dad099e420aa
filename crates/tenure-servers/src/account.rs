//! The user that a server runs as. Database servers refuse to run as root, so root's tests start them as the user that
//! the server's Debian package has made.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::needs::{cannot_start, program};

/// The user that a server runs as.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// The user's name and IDs; `None` for the user that runs the tests.
    other: Option<(&'static str, u32, u32)>,
}

impl Account {
    /// The user `name` if the tests run as root, else the user that runs the tests.
    pub(crate) fn of_package(name: &'static str) -> io::Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account { other: None });
        }
        let passwd = std::fs::read_to_string("/etc/passwd")?;
        let ids = passwd.lines().find_map(|line| ids(line, name));
        let missing = || {
            io::Error::other(format!(
                "root cannot run this server, and there is no user `{name}`"
            ))
        };
        let (uid, gid) = ids.ok_or_else(missing)?;
        Ok(Account {
            other: Some((name, uid, gid)),
        })
    }

    /// The options with which `setpriv` runs a program as this user.
    pub(crate) fn setpriv_options(&self) -> Vec<String> {
        let Some((name, ..)) = self.other else {
            return Vec::new();
        };
        ["--reuid", name, "--regid", name, "--init-groups"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Makes this user the owner of a file or folder.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        match self.other {
            Some((_, uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Runs a program to its end as this user.
    pub(crate) fn run(&self, name: &str, args: &[&str]) -> io::Result<()> {
        let output = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(self.setpriv_options())
            .arg(program(name))
            .args(args)
            .output()
            .map_err(|error| cannot_start("setpriv", error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "`{name}` failed:\n{}{}",
                text(&output.stdout),
                text(&output.stderr)
            ))),
        }
    }
}

/// The user and group IDs in a line of `/etc/passwd`, if it is the line of the user `name`.
fn ids(line: &str, name: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = line.split(':').collect();
    match fields[..] {
        [user, _, uid, gid, ..] if user == name => Some((uid.parse().ok()?, gid.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_ids_are_read_from_its_line() {
        let line = "mysql:x:104:112:MySQL Server,,,:/nonexistent:/bin/false";
        assert_eq!(ids(line, "mysql"), Some((104, 112)));
        assert_eq!(ids(line, "my"), None);
        assert_eq!(ids("mysql:x:many:112", "mysql"), None);
    }
}
