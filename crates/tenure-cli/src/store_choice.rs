//! Chooses the store of a command line: the one that options, environment or files name, or else the embedded store, an
//! SQLite file in the user's state folder.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fmt};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use thiserror::Error;

use crate::args::Global;
use crate::home::{Home, absolute};
use crate::state_folder::other_owner;

/// The file in which the administrator names the store.
const ETC_URL: &str = "/etc/tenure/url";
/// Name of the SQLite file of the embedded store, the store of a user who names none.
const FILE: &str = "locks.db";
/// Number of bytes of a URL file that are read, at most. No URL with its comments is that long.
const LONGEST_FILE: u64 = 64 * 1024;
/// The characters of a path that are percent-encoded in a URL.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_')
    .remove(b'~');

/// Everything that the choice of a store depends on, except the contents of files.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `--url`.
    pub url: Option<String>,
    /// `--url-file`.
    pub url_file: Option<PathBuf>,
    /// `TENURE_URL`.
    pub tenure_url: Option<OsString>,
    /// `XDG_CONFIG_HOME`.
    pub config_home: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<OsString>,
    /// The home directory.
    pub home: Home,
    /// True if root runs this process.
    pub is_root: bool,
    /// Path of the administrator's URL file, `/etc/tenure/url`.
    pub etc_url: PathBuf,
    /// The working directory.
    pub here: Option<PathBuf>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of(global: &Global) -> Environment {
        Environment {
            url: global.url.clone(),
            url_file: global.url_file.clone(),
            tenure_url: env::var_os("TENURE_URL"),
            config_home: env::var_os("XDG_CONFIG_HOME"),
            state_home: env::var_os("XDG_STATE_HOME"),
            home: Home::of_this_user(),
            #[cfg(unix)]
            is_root: rustix::process::geteuid().is_root(),
            #[cfg(not(unix))]
            is_root: false,
            etc_url: PathBuf::from(ETC_URL),
            here: env::current_dir().ok(),
        }
    }
}

/// The store that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The URL for the library. May hold a password.
    pub url: String,
    /// Source of the URL.
    pub source: Source,
    /// Folder of the embedded store (the user's own SQLite file), to be created before connecting. `None` for every
    /// other store.
    pub folder: Option<PathBuf>,
    /// Notes for stderr, unless `-q` is given.
    pub notes: Vec<String>,
}

/// Source of a store's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--url`.
    Option,
    /// The first line of this file that is neither empty nor a comment.
    File(PathBuf),
    /// `TENURE_URL`.
    Variable,
    /// No source names a store, so the user's own SQLite file (the embedded store) is used.
    Default,
}

/// Formats the source for messages: the option, the variable, or the file's path.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Option => f.write_str("--url"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Variable => f.write_str("TENURE_URL"),
            Source::Default => f.write_str("the embedded store"),
        }
    }
}

/// Why no store could be chosen. A usage error.
#[derive(Debug, Error)]
pub enum NoStore {
    /// A file that should name the store cannot be read.
    #[error("cannot read the store's URL from {0}; another store would not be the same lock")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The option, variable or file holds no URL.
    #[error("{0} holds no URL; write one, as `redis://host` or `sqlite:`, or remove it")]
    Empty(String),
    /// The variable or file is not UTF-8.
    #[error("{0} is not UTF-8; percent-encode odd bytes")]
    NotText(String),
    /// A URL file names a lock file by a relative path.
    #[error(
        "{0} says {1}, which would be another lock file in each working directory; write an absolute path"
    )]
    Relative(PathBuf, String),
    /// The URL is `memory:`, a store that no other process sees.
    #[error("the store `memory:` lives in one process: commands would lock nothing; use `sqlite:`")]
    Memory,
    /// The embedded store (the user's own SQLite file) has no folder, because no home directory is known.
    #[error("the embedded store needs a home directory; set HOME, or use --url sqlite:/path/locks.db")]
    Homeless,
    /// `HOME` names no home directory, and the user database cannot be read.
    #[error("the home directory of this user cannot be looked up; set HOME, or name the store with --url")]
    UnknownHome(#[from] Arc<io::Error>),
    /// Root would create the embedded store in a directory of another user, whose commands could not use it.
    #[error(
        "root runs this command, but {0} belongs to user {1}, whose own commands could not use root's locks there; \
         set HOME to root's home directory (sudo -H), or name the store with --url"
    )]
    OfAnotherUser(PathBuf, u32),
}

/// Chooses the store: `--url` or `--url-file`, then `TENURE_URL`, then the user's URL file, then the administrator's.
/// If none is given, chooses the embedded store, an SQLite file in the user's state folder.
///
/// # Errors
/// If a source exists but cannot be used. It is not skipped, because the next source could name another store, and so
/// another lock. Also if there is no source, and no folder for the embedded store.
pub fn choose(environment: &Environment) -> Result<Choice, NoStore> {
    let (source, named) = match named_url(environment)? {
        Some(named) => named,
        None => {
            let mut choice = embedded(environment, Source::Default, "")?;
            let folder = choice.folder.as_deref().unwrap_or(Path::new("")).display();
            let note = format!(
                "no store is named, so this lock is local to this user on this machine ({folder}). To share it with \
                 other users or machines, set TENURE_URL or --url (see `tenure --help`); to hide this note, set it to `sqlite:`"
            );
            choice.notes.insert(0, note);
            return Ok(choice);
        }
    };
    let (scheme, rest) = named.split_once(':').unwrap_or((&named, ""));
    if scheme.eq_ignore_ascii_case("memory") {
        return Err(NoStore::Memory);
    }
    if scheme.eq_ignore_ascii_case("sqlite") && (rest.is_empty() || rest.starts_with('?')) {
        return embedded(environment, source, rest);
    }
    let url = match &source {
        _ if !scheme.eq_ignore_ascii_case("sqlite") || rest.starts_with('/') => named,
        Source::File(file) => return Err(NoStore::Relative(file.clone(), named)),
        // Make the path absolute: the command gets it in TENURE_STORE and may run in another directory.
        _ => match &environment.here {
            Some(here) => format!("sqlite:{}/{rest}", in_url(here)),
            None => named,
        },
    };
    Ok(Choice {
        url,
        source,
        folder: None,
        notes: Vec::new(),
    })
}

fn named_url(environment: &Environment) -> Result<Option<(Source, String)>, NoStore> {
    if let Some(url) = &environment.url {
        return Ok(Some((Source::Option, some_url(url, "--url")?)));
    }
    if let Some(path) = &environment.url_file {
        return match first_line(path)? {
            Some(url) => Ok(Some((Source::File(path.clone()), url))),
            None => Err(NoStore::Unreadable(path.clone(), io::ErrorKind::NotFound.into())),
        };
    }
    if let Some(url) = environment.tenure_url.as_deref() {
        let text = url
            .to_str()
            .ok_or_else(|| NoStore::NotText("TENURE_URL".to_owned()))?;
        return Ok(Some((Source::Variable, some_url(text, "TENURE_URL")?)));
    }
    for file in url_files(environment)? {
        if let Some(url) = first_line(&file)? {
            return Ok(Some((Source::File(file), url)));
        }
    }
    Ok(None)
}

/// Returns the files that may name a store, in order of preference.
pub(crate) fn url_files(environment: &Environment) -> Result<Vec<PathBuf>, NoStore> {
    let config = match absolute(environment.config_home.as_deref()) {
        Some(config) => Some(config),
        None => environment.home.path()?.map(|home| home.join(".config")),
    };
    let users = config.map(|folder| folder.join("tenure/url"));
    Ok(users.into_iter().chain([environment.etc_url.clone()]).collect())
}

/// Returns the URL in a file: its first line that is neither empty nor a comment, which begins with `#`. `None` if there
/// is no such file.
pub(crate) fn first_line(path: &Path) -> Result<Option<String>, NoStore> {
    let file = match fs::File::open(path) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        other => other.map_err(|error| NoStore::Unreadable(path.to_owned(), error))?,
    };
    let source = path.display().to_string();
    for line in io::BufReader::new(file.take(LONGEST_FILE)).split(b'\n') {
        let line = line.map_err(|error| NoStore::Unreadable(path.to_owned(), error))?;
        let text = String::from_utf8(line).map_err(|_| NoStore::NotText(source.clone()))?;
        let url = text.trim();
        if !url.is_empty() && !url.starts_with('#') {
            return Ok(Some(url.to_owned()));
        }
    }
    Err(NoStore::Empty(source))
}

fn some_url(text: &str, source: &str) -> Result<String, NoStore> {
    match text.trim() {
        "" => Err(NoStore::Empty(source.to_owned())),
        url => Ok(url.to_owned()),
    }
}

/// Chooses the embedded store, an SQLite file in the user's state folder. `query` is appended to its URL.
fn embedded(environment: &Environment, source: Source, query: &str) -> Result<Choice, NoStore> {
    let home = environment.home.path();
    let below = |home: &Path| home.join(".local/state/tenure");
    let (base, folder) = match absolute(environment.state_home.as_deref()) {
        Some(state) => (state.clone(), state.join("tenure")),
        None => {
            let home = home.clone()?.ok_or(NoStore::Homeless)?;
            (home.to_owned(), below(home))
        }
    };
    if let Some(owner) = other_owner(&base).filter(|_| environment.is_root) {
        return Err(NoStore::OfAnotherUser(base, owner));
    }
    let usual = home.ok().flatten().map(below);
    let other = usual.filter(|usual| *usual != folder && usual.join(FILE).exists());
    let note = other.map(|other| {
        format!(
            "XDG_STATE_HOME is set, so locks are kept in {}, but {} has a store too: \
             commands that run without XDG_STATE_HOME lock there, and neither sees the other's locks",
            folder.display(),
            other.display()
        )
    });
    let path = folder.join(FILE);
    Ok(Choice {
        url: format!("sqlite:{}{query}", in_url(&path)),
        source,
        folder: Some(folder),
        notes: note.into_iter().collect(),
    })
}

/// Percent-encodes a path for a URL.
fn in_url(path: &Path) -> impl fmt::Display {
    percent_encode(path.as_os_str().as_encoded_bytes(), IN_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn url(machine: &Machine) -> String {
        choose(&machine.environment).expect("a store").url
    }

    #[test]
    fn each_source_yields_to_the_one_before_it() {
        let mut machine = Machine::new();
        let home = machine.folder.path().join("home");
        assert_eq!(
            url(&machine),
            format!("sqlite:{}/.local/state/tenure/locks.db", home.display())
        );
        machine.write(
            "etc/tenure/url",
            "\n # of all\n\nredis://etc\nredis://second\n",
            0o600,
        );
        assert_eq!(url(&machine), "redis://etc");
        machine.write("home/.config/tenure/url", "redis://config", 0o600);
        assert_eq!(url(&machine), "redis://config");
        machine.environment.config_home = Some(machine.folder.path().join("xdg").into());
        assert_eq!(url(&machine), "redis://etc");
        machine.write("xdg/tenure/url", " redis://xdg \r\n", 0o600);
        assert_eq!(url(&machine), "redis://xdg");
        machine.environment.tenure_url = Some("redis://env".into());
        assert_eq!(url(&machine), "redis://env");
        machine.write("file", "redis://file\n", 0o600);
        machine.environment.url_file = Some(machine.folder.path().join("file"));
        assert_eq!(url(&machine), "redis://file");
        machine.environment.url = Some("redis://option".into());
        assert_eq!(url(&machine), "redis://option");
    }

    #[test]
    fn an_empty_tenure_url_is_refused() {
        let mut machine = Machine::new();
        machine.write("home/.config/tenure/url", "redis://config", 0o600);
        for empty in ["", " "] {
            machine.environment.tenure_url = Some(empty.into());
            let refusal = choose(&machine.environment).expect_err("it names no store");
            assert!(
                refusal.to_string().starts_with("TENURE_URL holds no URL"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn an_unreadable_user_database_is_not_passed_over() {
        let mut machine = Machine::new();
        let error = Arc::new(io::Error::other("too many files"));
        machine.environment.home = Home::Unreadable(error);
        machine.write("etc/tenure/url", "redis://etc", 0o600);
        let refusal = choose(&machine.environment).expect_err("the user's file may name another store");
        assert!(matches!(refusal, NoStore::UnknownHome(_)), "{refusal}");
        machine.environment.url = Some("redis://option".into());
        assert_eq!(url(&machine), "redis://option");
    }

    /// Root can create files everywhere, and they would keep out the commands of the user whose folder it is.
    #[cfg(unix)]
    #[test]
    fn root_does_not_use_the_folder_of_another_user() {
        let mut machine = Machine::new();
        let folder = machine.folder.path().to_owned();
        let owner = 65_534;
        if other_owner(&folder).is_none() {
            std::os::unix::fs::chown(&folder, Some(owner), None).expect("root may do that");
        }
        choose(&machine.environment).expect("a user may use a folder of another user");
        machine.environment.is_root = true;
        for (home, state) in [(true, None), (false, Some(folder.join("state")))] {
            machine.environment.home = if home {
                Home::Known(folder.join("home"))
            } else {
                Home::Unknown
            };
            machine.environment.state_home = state.map(Into::into);
            let refusal = choose(&machine.environment).expect_err("it is another user's");
            assert!(refusal.to_string().contains("sudo -H"), "{refusal}");
        }
        machine.environment.url = Some("redis://option".into());
        assert_eq!(url(&machine), "redis://option");
    }

    #[test]
    fn relative_folders_are_ignored() {
        let mut machine = Machine::new();
        machine.environment.config_home = Some("relative".into());
        machine.environment.state_home = Some("relative".into());
        machine.write("home/.config/tenure/url", "redis://config", 0o600);
        assert_eq!(url(&machine), "redis://config");
    }

    #[test]
    fn a_relative_path_is_resolved_and_refused_in_a_url_file() {
        let mut machine = Machine::new();
        machine.environment.here = Some(PathBuf::from("/srv/a b"));
        machine.environment.tenure_url = Some("sqlite:locks/l.db?max_lease=1h".into());
        assert_eq!(url(&machine), "sqlite:/srv/a%20b/locks/l.db?max_lease=1h");
        machine.environment.url = Some("sqlite:/l.db".into());
        assert_eq!(url(&machine), "sqlite:/l.db");
        (machine.environment.tenure_url, machine.environment.url) = (None, None);
        for file in ["home/.config/tenure/url", "file"] {
            machine.write(file, "sqlite:l.db", 0o600);
            machine.environment.url_file = (file == "file").then(|| machine.folder.path().join(file));
            let refusal = choose(&machine.environment).expect_err("it would be many files");
            let words = refusal.to_string();
            assert!(words.contains(file) && words.contains("absolute path"), "{words}");
        }
    }

    #[test]
    fn only_the_default_store_is_announced() {
        let mut machine = Machine::new();
        let choice = choose(&machine.environment).expect("a store");
        let folder = machine.folder.path().join("home/.local/state/tenure");
        assert_eq!(choice.folder.as_deref(), Some(&*folder));
        assert!(choice.notes[0].contains("local") && choice.notes[0].contains(&folder.display().to_string()));
        machine.environment.url = Some("sqlite:".into());
        let named = choose(&machine.environment).expect("a store");
        assert_eq!(
            (named.url, named.folder, named.notes),
            (choice.url, choice.folder, Vec::new())
        );
    }

    #[test]
    fn a_second_embedded_store_prints_a_note() {
        let mut machine = Machine::new();
        machine.environment.url = Some("SQLITE:?fencing=x".into());
        machine.environment.state_home = Some(machine.folder.path().join("st ate").into());
        let path = machine.folder.path().join("st%20ate/tenure/locks.db");
        let choice = choose(&machine.environment).expect("a store");
        assert_eq!(choice.url, format!("sqlite:{}?fencing=x", path.display()));
        assert!(choice.notes.is_empty());
        machine.write("home/.local/state/tenure/locks.db", "", 0o600);
        let notes = choose(&machine.environment).expect("a store").notes;
        assert!(
            notes.len() == 1 && notes[0].contains("home/.local/state/tenure"),
            "{notes:?}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_used_is_never_passed_over() {
        let mut machine = Machine::new();
        machine.write("etc/tenure/url", "redis://etc", 0o600);
        machine.write("home/.config/tenure/url", "\n# redis://comment\n", 0o600);
        assert!(matches!(choose(&machine.environment), Err(NoStore::Empty(_))));
        machine.environment.config_home = Some(machine.folder.path().into());
        fs::create_dir_all(machine.folder.path().join("tenure/url")).expect("the folder is ours");
        assert!(matches!(
            choose(&machine.environment),
            Err(NoStore::Unreadable(..))
        ));
        machine.environment.url_file = Some("/nonexistent".into());
        assert!(matches!(
            choose(&machine.environment),
            Err(NoStore::Unreadable(..))
        ));
        machine.environment.url = Some(" ".into());
        assert!(matches!(choose(&machine.environment), Err(NoStore::Empty(_))));
    }

    #[test]
    fn without_any_home_the_message_says_what_to_set() {
        let mut machine = Machine::new();
        machine.environment.home = Home::Unknown;
        let refusal = choose(&machine.environment).expect_err("no folder");
        assert!(refusal.to_string().contains("HOME"), "{refusal}");
        machine.environment.state_home = Some("/state".into());
        assert_eq!(url(&machine), "sqlite:/state/tenure/locks.db");
    }
}
