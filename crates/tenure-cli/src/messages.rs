//! Messages on stderr: failures (what, why, what to do), warnings and notes.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Write};

use tenure::backend::escape_control;
use tenure::{Error, Fault, LockKey, StoreUrl};

use crate::status_line;

/// Why a verb failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The cause of the failure: the caller, or the store (or this machine).
    pub blame: Blame,
    what: String,
    why: Vec<String>,
    help: Option<String>,
}

/// The cause of a failure, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller asked for something that this store, or any store, cannot do.
    Usage,
    /// The store or this machine failed.
    Store,
}

impl Failure {
    /// Creates a failure caused by a wrong option or argument.
    pub fn usage(what: impl Into<String>, why: impl StdError) -> Failure {
        Failure::because(Blame::Usage, what.into(), &why)
    }

    /// Creates a failure of the operating system.
    pub fn system(what: impl Into<String>, why: impl StdError) -> Failure {
        Failure::because(Blame::Store, what.into(), &why)
    }

    fn because(blame: Blame, what: String, why: &dyn StdError) -> Failure {
        Failure {
            blame,
            what: without_passwords(&what),
            why: chain(why),
            help: None,
        }
    }

    /// Creates a failure of a store that did not answer in time.
    pub fn no_answer(what: impl Into<String>) -> Failure {
        Failure {
            blame: Blame::Store,
            what: what.into(),
            why: vec!["the store did not answer in time".to_owned()],
            help: None,
        }
    }

    /// Creates a failure from an error of the library. `what` is printed without masking, because it may name a key
    /// that looks like a URL.
    pub fn of(what: impl Into<String>, error: &Error) -> Failure {
        let failure = |blame, why, help: Option<&str>| Failure {
            blame,
            what: what.into(),
            why,
            help: help.map(str::to_owned),
        };
        match error {
            Error::Mismatch { held, asked } => failure(
                Blame::Usage,
                vec![format!("the key is {held} and was asked for as {asked}")],
                Some("use another key, or wait until this one has no holder and no waiter"),
            ),
            Error::Unsupported(cause) => failure(Blame::Usage, chain(cause), None),
            Error::Invalid(_) | Error::Limit(_) => failure(Blame::Usage, chain(error), None),
            Error::Backend(cause) => failure(
                Blame::Store,
                chain(cause),
                (cause.fault() == Fault::Unavailable)
                    .then_some("see that the store runs and is the one you mean, then try again"),
            ),
            _ => failure(Blame::Store, chain(error), None),
        }
    }

    /// Adds what to do about the failure.
    #[must_use]
    pub fn with_help(self, help: &str) -> Failure {
        let help = Some(help.to_owned());
        Failure { help, ..self }
    }

    /// Prints the failure to stderr.
    pub fn print(&self) {
        print_line(&format!("error: {self}"));
    }

    /// Prints the failure to stderr as a warning, for a verb that goes on.
    pub fn warn(&self) {
        print_line(&format!("warning: {self}"));
    }
}

/// Formats one line with what failed, then lines with the causes and with help.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_control(&self.what))?;
        for why in &self.why {
            write!(f, "\n  = why: {}", escape_control(why))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  = help: {help}"),
            None => Ok(()),
        }
    }
}

/// Returns the messages of an error and its causes, without adjacent repetitions. Passwords are masked: an error may
/// quote a URL that stands in the wrong place.
fn chain(error: &dyn StdError) -> Vec<String> {
    let (mut words, mut cause) = (Vec::<String>::new(), Some(error));
    while let Some(error) = cause {
        let message = without_passwords(&error.to_string());
        if words.last() != Some(&message) {
            words.push(message);
        }
        cause = error.source();
    }
    words
}

/// Prints a warning as one line.
pub fn warn(words: &str) {
    print_line(&format!("warning: {}", escape_control(&without_passwords(words))));
}

/// Prints a note as one line. Silent with `-q`.
pub fn note(quiet: bool, words: &str) {
    note_as_is(quiet, &without_passwords(words));
}

/// As `note`, without masking: for text with keys, which may look like URLs, and for URLs that are masked already.
pub fn note_as_is(quiet: bool, words: &str) {
    if !quiet {
        print_line(&format!("note: {}", escape_control(words)));
    }
}

/// Prints the result of a verb as one line, without `note:`. Silent with `-q`.
pub fn summary(quiet: bool, words: &str) {
    if !quiet {
        print_line(&escape_control(words));
    }
}

/// Prints to stderr. An error is ignored: a closed stderr must not stop the verb.
fn print_line(text: &str) {
    status_line::clear();
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Example URLs in our own messages. They hold no password and are not masked.
const ADVICE: [&str; 6] = [
    "redis://USER:PASSWORD@HOST",
    "redis://:PASSWORD@HOST",
    "etcd://USER:PASSWORD@HOST",
    "etcds://USER:PASSWORD@HOST",
    "zookeeper://USER:PASSWORD@HOST",
    "zookeepers://USER:PASSWORD@HOST",
];

/// Returns only the first 40 characters of a text that is too long to be a key. Returns any other text as it is.
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LockKey::MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(40).chain(['…']).collect())
}

/// Masks every possible password of a URL, in text that repeats a user's input.
///
/// In each line, masks the text from the first `:` after `://` to the last `@`. A password may hold spaces, quotes
/// and other special characters, so the mask may cover too much. Without such a `:`, masks the user name, which may
/// be a password whose colon is missing; in a quoted URL even a user name with spaces. Does not change a line whose
/// only URLs are the examples in `ADVICE`.
///
/// Also masks the values of unknown options: they may be misspelled credentials.
pub fn without_passwords(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(masked);
    lines.map(|line| without_option_values(&line)).collect()
}

/// Masks the values of unknown options in the first URL of a line. A value may contain `&`, so the mask covers all text
/// up to the next known option or the end of the URL. The URL ends at the quote that encloses it, or with the line.
fn without_option_values(line: &str) -> String {
    let Some(query) = first_query(line) else {
        return line.to_owned();
    };
    let (before, query) = line.split_at(query);
    let quote = quote_before_the_url(before);
    let end = quote
        .and_then(|quote| query.rfind(quote))
        .unwrap_or(query.trim_end().len());
    let (query, after) = query.split_at(end);
    let mut shown: Vec<Cow<'_, str>> = Vec::new();
    let mut hides = false;
    for part in query.split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let is_known = StoreUrl::shows_option(name);
        let is_secret = !is_known && part.contains('=') && !value.starts_with("***");
        if is_secret && !hides {
            shown.push(format!("{name}=***").into());
        } else if is_known || !hides {
            shown.push(part.into());
        }
        hides = !is_known && (hides || is_secret);
    }
    format!("{before}{}{after}", shown.join("&"))
}

/// Returns the index of the first URL's options: after a `?` in a word that has a scheme.
fn first_query(line: &str) -> Option<usize> {
    line.match_indices('?').map(|(at, _)| at).find_map(|at| {
        let word = line[..at].rsplit(char::is_whitespace).next()?;
        let (scheme, _) = word.split_once(':')?;
        let scheme = scheme.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        (!scheme.is_empty() && line[at + 1..].contains('=')).then_some(at + 1)
    })
}

/// Returns the first quotation mark in the last word of `before`, the text up to the `?` of a URL. The URL ends at
/// the last such mark of the line.
fn quote_before_the_url(before: &str) -> Option<char> {
    let word = before.rsplit(char::is_whitespace).next()?;
    word.chars().find(|c| matches!(c, '\'' | '"' | '`'))
}

fn masked(line: &str) -> String {
    let is_advice = |line: &str| {
        let foreign = ADVICE
            .iter()
            .fold(line.to_owned(), |line, advice| line.replace(advice, ""));
        !foreign.contains("://") && !foreign.contains('@')
    };
    let Some((scheme, rest)) = line.split_once("://").filter(|_| !is_advice(line)) else {
        return line.to_owned();
    };
    let Some((before, after)) = rest.rsplit_once('@') else {
        return line.to_owned();
    };
    // Outside of quotes a URL ends at a space, so an `@` after a space belongs to other text.
    let has_ended = before.contains(char::is_whitespace) && !scheme.contains(['\'', '"', '`']);
    match before.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***@{after}"),
        None if before.is_empty() || has_ended => line.to_owned(),
        None => format!("{scheme}://***@{after}"),
    }
}

#[cfg(test)]
mod tests {
    use tenure::backend::BackendError;
    use tenure::{Effect, Kind};

    use super::*;

    #[test]
    fn a_failure_prints_what_why_and_help() {
        let held = Error::Mismatch {
            held: Kind::Mutex,
            asked: Kind::ReadWrite,
        };
        let failure = Failure::of("cannot lock \"k\"", &held);
        assert_eq!(failure.blame, Blame::Usage);
        assert_eq!(
            failure.to_string(),
            "cannot lock \"k\"\n  = why: the key is a mutex and was asked for as a read-write lock\n  \
             = help: use another key, or wait until this one has no holder and no waiter"
        );
    }

    #[test]
    fn passwords_of_any_characters_are_masked() {
        for (text, masked) in [
            ("a redis://u:p@h:1/0' b c://d", "a redis://u:***@h:1/0' b c://d"),
            ("'redis://:p'a s:s@x@h'\nx@y z:1", "'redis://:***@h'\nx@y z:1"),
            ("redis://h:1/0 and x:y", "redis://h:1/0 and x:y"),
            ("a@b c:d", "a@b c:d"),
            ("redis://u@h", "redis://***@h"),
            ("'redis://s3/cr?3t@h'", "'redis://***@h'"),
            ("redis://h is of x@y", "redis://h is of x@y"),
            (
                "'redis://h?auth=s3cr3t' is no verb",
                "'redis://h?auth=***' is no verb",
            ),
            (
                "'redis://h?auth=s3 &cr'3t?x' is no verb",
                "'redis://h?auth=***' is no verb",
            ),
            ("'sqlite:x.db?pin=s3cr3t'", "'sqlite:x.db?pin=***'"),
            ("'redis://h?db.password=s3cr3t'", "'redis://h?db.password=***'"),
            ("redis://h?auth=s3 cr3t and so on", "redis://h?auth=***"),
            (
                "redis://h?auth=***, as TENURE_URL names it",
                "redis://h?auth=***, as TENURE_URL names it",
            ),
            ("may I ask: what is a=b?", "may I ask: what is a=b?"),
            (
                "redis://h?connect_timeout=5s&x=s3cr3t&y=s3cr3t&ca=/a b",
                "redis://h?connect_timeout=5s&x=***&ca=/a b",
            ),
            (
                "no subcommand 'redis://s3 cr3t@h'",
                "no subcommand 'redis://***@h'",
            ),
            ("`redis://s3\tcr3t @h`", "`redis://***@h`"),
            ("'-x redis://s3 c'r3t@h'", "'-x redis://***@h'"),
        ] {
            assert_eq!(without_passwords(text), masked);
        }
    }

    /// Tries many URLs, in several positions of a line, with several texts around them.
    #[test]
    fn no_url_shows_its_password() {
        let marks = [
            "",
            "/",
            "?",
            "#",
            "@",
            ":",
            " ",
            "'",
            "\"",
            "`",
            "%40",
            "://",
            "USER",
            "redis://:PASSWORD@HOST",
            "PASSWORD@HOST",
        ];
        let lines = [
            "URL",
            "'URL' cannot be used",
            "URL and URL",
            "write `redis://USER:PASSWORD@HOST`, not URL",
            "URL: write `redis://:PASSWORD@HOST` for the default user's",
        ];
        for mark in marks {
            for secret in [
                format!("{mark}s3cr3t"),
                format!("s3cr3t{mark}"),
                format!("s3c{mark}s3cr3t"),
            ] {
                for url in [
                    "redis://u:PW@h",
                    "rediss://:PW@h:1/0?x=y",
                    "redis://USER:PW@HOST",
                    "a+b://u:x:PW@h,i",
                ] {
                    for line in lines {
                        let said = line.replace("URL", &url.replace("PW", &secret));
                        let masked = without_passwords(&said);
                        assert!(!masked.contains("s3cr3t"), "{said} is {masked}");
                    }
                }
            }
        }
    }

    #[test]
    fn our_own_advice_and_keys_are_not_masked() {
        for advice in [
            "write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for the default user's",
            "write `zookeepers://USER:PASSWORD@HOST`, or name a file with `password_file`",
        ] {
            assert_eq!(without_passwords(advice), advice);
        }
        let key = "https://shop.example:8080/order@7";
        let failure = Failure::of(format!("cannot lock {key:?}"), &Error::Timeout).to_string();
        assert!(failure.contains(key), "{failure}");
    }

    #[test]
    fn foreign_text_cannot_forge_a_line() {
        let cause = io::Error::other("gone\nerror: forged\u{1b}[2J");
        let failure = Failure::system("cannot read \u{202e}it", cause);
        assert_eq!(
            failure.to_string(),
            "cannot read \\u{202e}it\n  = why: gone\\nerror: forged\\u{1b}[2J"
        );
    }

    #[test]
    fn a_failure_lists_the_cause_of_its_cause() {
        let cause = io::Error::other("the wire is cut");
        let fault = BackendError::because(Fault::Unavailable, Effect::Unknown, "no answer within 3 s", cause);
        let failure = Failure::of("cannot lock \"k\"", &fault.into());
        assert_eq!(failure.blame, Blame::Store);
        let text = failure.to_string();
        assert!(
            text.contains("= why: no answer within 3 s\n  = why: the wire is cut\n  = help: "),
            "{text}"
        );
    }
}
