//! Who runs this process, as the user database has it: for callers whose environment does not say.

#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
#[cfg(unix)]
use std::process::{Command, Stdio};
#[cfg(unix)]
use std::time::Duration;
#[cfg(unix)]
use std::{fs, io::Read, sync::mpsc, thread};

/// How long a directory service may take. A command that is to run does not wait for a name.
#[cfg(unix)]
const SOON: Duration = Duration::from_secs(2);

/// What the user database knows of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The home directory; none unless it is an absolute path.
    pub home: Option<PathBuf>,
}

impl Account {
    /// The account of whoever runs this process. `None` if nobody knows it.
    #[cfg(unix)]
    pub fn of_this_user() -> Option<Account> {
        let user = rustix::process::getuid().as_raw();
        let listed = fs::read_to_string("/etc/passwd")
            .ok()
            .and_then(|table| Account::in_table(&table, user));
        listed.or_else(|| {
            // Users of a directory service are in no file.
            let mut getent = Command::new("getent");
            getent.arg("passwd").arg(user.to_string());
            Account::in_table(&said_by(getent, SOON)?, user)
        })
    }

    /// Elsewhere the system knows the home and no name.
    #[cfg(not(unix))]
    pub fn of_this_user() -> Option<Account> {
        Some(Account {
            name: String::new(),
            home: std::env::home_dir(),
        })
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

/// What a command says, if it has ended by then. Otherwise it is killed.
#[cfg(unix)]
fn said_by(mut command: Command, limit: Duration) -> Option<String> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut asked = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut stdout = asked.stdout.take()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        // Whoever asked may have gone.
        let _ = tell.send(stdout.read_to_end(&mut said).is_ok().then_some(said));
    });
    let said = told.recv_timeout(limit).ok().flatten();
    let _ = asked.kill();
    let _ = asked.wait();
    Some(String::from_utf8_lossy(&said?).into_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_directory_service_that_does_not_answer_is_not_waited_for() {
        let mut silent = Command::new("sleep");
        silent.arg("600");
        assert_eq!(said_by(silent, Duration::from_millis(50)), None);
        let mut prompt = Command::new("echo");
        prompt.arg("ann");
        assert_eq!(said_by(prompt, Duration::from_secs(60)).as_deref(), Some("ann\n"));
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
