//! Checks the options of a URL against those that a store knows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::duration::parse_duration;
use crate::error::InvalidUrl;

/// An option that a store knows: its name and the type of its value.
///
/// # Examples
///
/// ```
/// use tenure_endpoint::{Known, StoreUrl};
///
/// const KNOWN: &[Known] = &[Known::duration("connect_timeout"), Known::path("password_file")];
/// let url = StoreUrl::parse("redis://cache?connect_timeout=5")?;
/// assert_eq!(
///     url.options(KNOWN).unwrap_err().to_string(),
///     "the option `connect_timeout` is not a duration: `5` has no unit: write `5s` for seconds, or `ms`, `m`, `h`",
/// );
/// # Ok::<(), tenure_endpoint::InvalidUrl>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Known {
    name: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Duration,
    Limit,
    Flag,
    Text,
    Path,
    FileMode,
    OneOf(&'static [&'static str]),
}

impl Known {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind }
    }

    /// An option whose value is a length of time, as [`parse_duration`] reads it.
    #[must_use]
    pub const fn duration(name: &'static str) -> Self {
        Self::new(name, Kind::Duration)
    }

    /// An option whose value is a length of time that is longer than 0.
    #[must_use]
    pub const fn limit(name: &'static str) -> Self {
        Self::new(name, Kind::Limit)
    }

    /// An option whose value is `true` or `false`.
    #[must_use]
    pub const fn flag(name: &'static str) -> Self {
        Self::new(name, Kind::Flag)
    }

    /// An option whose value is any text that is not empty.
    #[must_use]
    pub const fn text(name: &'static str) -> Self {
        Self::new(name, Kind::Text)
    }

    /// An option whose value is the path of a file. Reading the URL does not open the file.
    #[must_use]
    pub const fn path(name: &'static str) -> Self {
        Self::new(name, Kind::Path)
    }

    /// An option whose value is the mode of a file, in three or four octal digits, such as `0660`. The owner must have
    /// read and write, and no bits may be set but the permissions of owner, group and others.
    #[must_use]
    pub const fn file_mode(name: &'static str) -> Self {
        Self::new(name, Kind::FileMode)
    }

    /// An option whose value is one of the words `choices`.
    #[must_use]
    pub const fn one_of(name: &'static str, choices: &'static [&'static str]) -> Self {
        Self::new(name, Kind::OneOf(choices))
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    fn read(&self, text: &str) -> Result<Value, InvalidUrl> {
        let name = || self.name.to_owned();
        let choose = |choices: &[&'static str]| {
            let found = choices.iter().find(|choice| **choice == text).copied();
            found.ok_or_else(|| InvalidUrl::Choice {
                name: name(),
                choices: list(choices, "or"),
            })
        };
        match self.kind {
            Kind::Duration | Kind::Limit => match parse_duration(text) {
                Ok(Duration::ZERO) if matches!(self.kind, Kind::Limit) => {
                    Err(InvalidUrl::Zero { name: name() })
                }
                Ok(duration) => Ok(Value::Duration(duration)),
                Err(source) => Err(InvalidUrl::Duration { name: name(), source }),
            },
            Kind::Flag => Ok(Value::Flag(choose(&["true", "false"])? == "true")),
            Kind::OneOf(choices) => Ok(Value::OneOf(choose(choices)?)),
            Kind::Text | Kind::Path if text.is_empty() => Err(InvalidUrl::NoValue { name: name() }),
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Path => Ok(Value::Path(PathBuf::from(text))),
            Kind::FileMode => match parse_file_mode(text) {
                Some(mode) => Ok(Value::FileMode(mode)),
                None => Err(InvalidUrl::FileMode { name: name() }),
            },
        }
    }
}

/// The options of a URL. The store knows each one, and its value fits the option's type.
///
/// # Panics
///
/// Each getter panics if the store's list of options lacks the name or gives it another type.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_endpoint::{Known, StoreUrl};
///
/// let known = [Known::duration("command_timeout"), Known::one_of("layout", &["claims", "unique"])];
/// let url = StoreUrl::parse("sqlite:locks.db?command_timeout=5s")?;
/// let options = url.options(&known)?;
/// assert_eq!(options.duration("command_timeout"), Some(Duration::from_secs(5)));
/// assert_eq!(options.one_of("layout"), None);
/// # Ok::<(), tenure_endpoint::InvalidUrl>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    known: Vec<Known>,
    given: Vec<(&'static str, Value)>,
}

#[derive(Debug, Clone)]
enum Value {
    Duration(Duration),
    Flag(bool),
    Text(String),
    Path(PathBuf),
    FileMode(u32),
    OneOf(&'static str),
}

impl Options {
    pub(crate) fn check(pairs: &[(String, String)], known: &[Known]) -> Result<Self, InvalidUrl> {
        let mut given = Vec::with_capacity(pairs.len());
        for (name, text) in pairs {
            let Some(option) = known.iter().find(|option| option.name == name) else {
                let names: Vec<_> = known.iter().map(|option| option.name).collect();
                return Err(InvalidUrl::Unknown {
                    name: name.clone(),
                    known: list(&names, "and"),
                });
            };
            given.push((option.name, option.read(text)?));
        }
        Ok(Self {
            known: known.to_vec(),
            given,
        })
    }

    /// The length of time in the option `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn duration(&self, name: &str) -> Option<Duration> {
        match self.find(name, |kind| matches!(kind, Kind::Duration | Kind::Limit))? {
            Value::Duration(duration) => Some(*duration),
            _ => None,
        }
    }

    /// The value of the flag `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.find(name, |kind| matches!(kind, Kind::Flag))? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The text in the option `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.find(name, |kind| matches!(kind, Kind::Text))? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The path in the option `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<&Path> {
        match self.find(name, |kind| matches!(kind, Kind::Path))? {
            Value::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The mode of a file in the option `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn file_mode(&self, name: &str) -> Option<u32> {
        match self.find(name, |kind| matches!(kind, Kind::FileMode))? {
            Value::FileMode(mode) => Some(*mode),
            _ => None,
        }
    }

    /// The word in the option `name`; `None` if the URL lacks the option.
    #[must_use]
    pub fn one_of(&self, name: &str) -> Option<&'static str> {
        match self.find(name, |kind| matches!(kind, Kind::OneOf(_)))? {
            Value::OneOf(choice) => Some(choice),
            _ => None,
        }
    }

    /// Finds the value of the option `name`. Panics if the store's list has no option with this name and type. Without
    /// the panic, a getter with a misspelled name would always return `None`.
    fn find(&self, name: &str, is_of_type: impl Fn(Kind) -> bool) -> Option<&Value> {
        let mut known = self.known.iter().filter(|option| option.name == name);
        assert!(
            known.any(|option| is_of_type(option.kind)),
            "the store asks for the option `{name}`, which it does not list under this type"
        );
        let mut given = self.given.iter();
        given.find(|(given, _)| *given == name).map(|(_, value)| value)
    }
}

/// Reads three or four octal digits. Returns `None` for another text, and for a mode that [`Known::file_mode`] excludes.
fn parse_file_mode(text: &str) -> Option<u32> {
    let is_octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    if !is_octal || ![3, 4].contains(&text.len()) {
        return None;
    }
    let mode = u32::from_str_radix(text, 8).ok()?;
    (mode <= 0o777 && mode & 0o600 == 0o600).then_some(mode)
}

/// Joins words to a list such as "`a`, `b` and `c`", each in backquotes. `last` is the word before the last item,
/// here "and".
fn list(words: &[&str], last: &str) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}
