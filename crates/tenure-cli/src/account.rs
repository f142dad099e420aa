//! Looks up the current user in the user database, for an environment that does not name the user or the home
//! directory.

use std::io;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
#[cfg(unix)]
use std::process::{Command, Stdio};
#[cfg(unix)]
use std::time::Duration;
#[cfg(unix)]
use std::{fs, io::Read, sync::mpsc, thread};

/// Time limit of `getent`, because the start of `tenure` waits for it.
#[cfg(unix)]
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

/// A user's entry in the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The home directory, if it is an absolute path.
    pub home: Option<PathBuf>,
}

impl Account {
    /// Returns the account of the user that runs this process. `None` if neither `/etc/passwd` nor `getent` shows one.
    ///
    /// # Errors
    /// If `/etc/passwd` is there and cannot be read, or if `getent` is there and cannot be started.
    #[cfg(unix)]
    pub fn of_this_user() -> io::Result<Option<Account>> {
        const TABLE: &str = "/etc/passwd";
        let user = rustix::process::getuid().as_raw();
        let table = if_present(TABLE, fs::read_to_string(TABLE))?;
        if let Some(listed) = table.and_then(|table| Account::in_table(&table, user)) {
            return Ok(Some(listed));
        }
        // Users of a directory service are not in /etc/passwd; `getent` finds them.
        let mut getent = Command::new("getent");
        getent.arg("passwd").arg(user.to_string());
        let line = if_present("getent", output_of(getent, LOOKUP_LIMIT))?.flatten();
        Ok(line.and_then(|line| Account::in_table(&line, user)))
    }

    /// Returns an account with an empty name: outside of Unix, only the home directory is looked up.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn of_this_user() -> io::Result<Option<Account>> {
        Ok(Some(Account {
            name: String::new(),
            home: std::env::home_dir(),
        }))
    }

    #[cfg(unix)]
    fn in_table(table: &str, user: u32) -> Option<Account> {
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.get(2)?.parse() == Ok(user)).then_some(())?;
            let home = fields.get(5).map(PathBuf::from);
            Some(Account {
                name: (*fields.first()?).to_owned(),
                home: home.filter(|home| Path::is_absolute(home)),
            })
        })
    }
}

/// Returns `None` if there is no such file or program. Any other error names it.
#[cfg(unix)]
fn if_present<T>(name: &str, found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{name}: {error}"))),
    }
}

/// Returns the output of a command. `None` if the command does not close its output within `limit`; it is then killed.
#[cfg(unix)]
fn output_of(mut command: Command, limit: Duration) -> io::Result<Option<String>> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || {
        let mut output = Vec::new();
        let read = stdout.map(|mut stdout| stdout.read_to_end(&mut output));
        // Sending fails if the receiver has timed out.
        let _ = sender.send(matches!(read, Some(Ok(_))).then_some(output));
    });
    // If no thread could be started, the sender is gone, and this returns at once.
    let output = receiver.recv_timeout(limit).ok().flatten();
    let _ = child.kill();
    let _ = child.wait();
    reader?;
    Ok(output.map(|output| String::from_utf8_lossy(&output).into_owned()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_slow_directory_service_is_killed() {
        let mut silent = Command::new("sleep");
        silent.arg("600");
        let output = output_of(silent, Duration::from_millis(50));
        assert_eq!(output.expect("it starts"), None);
        let mut prompt = Command::new("echo");
        prompt.arg("ann");
        let output = output_of(prompt, Duration::from_secs(60));
        assert_eq!(output.expect("it starts").as_deref(), Some("ann\n"));
    }

    #[test]
    fn only_a_missing_file_or_program_is_absent() {
        let missing = output_of(Command::new("/nonexistent"), Duration::ZERO);
        assert_eq!(if_present("it", missing).expect("it is only missing"), None);
        let unreadable = if_present("the root", fs::read_to_string("/")).expect_err("it is a directory");
        assert!(unreadable.to_string().starts_with("the root: "), "{unreadable}");
    }

    #[test]
    fn the_user_database_knows_names_and_homes() {
        let table =
            "root:x:0:0:root:/root:/bin/sh\nann:x:1000:7:Ann:/home/ann:/bin/sh\nodd:x:7:7::x:/bin/sh\n";
        let account = |user| Account::in_table(table, user).map(|account| (account.name, account.home));
        assert_eq!(account(1000), Some(("ann".to_owned(), Some("/home/ann".into()))));
        assert_eq!(account(0), Some(("root".to_owned(), Some("/root".into()))));
        assert_eq!(account(7), Some(("odd".to_owned(), None)));
        assert_eq!(account(1), None);
    }
}
