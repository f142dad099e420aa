//! Who runs this process, as the user database has it: for callers whose environment does not say.
//! What the name and the home are used for is the callers'.

#[cfg(unix)]
use std::fs;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

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
            let getent = std::process::Command::new("getent")
                .arg("passwd")
                .arg(user.to_string())
                .output()
                .ok()?;
            Account::in_table(&String::from_utf8_lossy(&getent.stdout), user)
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

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
