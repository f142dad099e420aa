//! Errors of store URLs.

use std::error::Error;
use std::fmt;
use std::iter;

use tenure_backend::{BackendError, Effect, Fault};

use crate::duration::InvalidDuration;

/// The part of a store URL that is wrong. The message says what to write instead.
///
/// No variant contains text that could be a password: hosts are named by their position, counted from 1, and options by
/// their name.
///
/// # Examples
///
/// ```
/// let refused = tenure_endpoint::StoreUrl::parse("redis://user:s3cr3t@host:65536").unwrap_err();
/// assert_eq!(refused.to_string(), "host 1 has no valid port: after `:` write a number from 1 to 65535");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUrl {
    /// The text is empty.
    #[error("the URL is empty: write one such as `sqlite:` or `redis://HOST`")]
    Empty,
    /// The URL is longer than `limit`.
    #[error("the URL is longer than {limit} bytes: is it a URL?")]
    TooLong {
        /// The greatest length of a URL, in bytes.
        limit: usize,
    },
    /// The URL contains a control character that is not percent-encoded, often a line end.
    #[error(
        "the URL holds a control character at byte {at}: remove it, or write it as `%` and two hex digits"
    )]
    ControlCharacter {
        /// Offset of the character, in bytes.
        at: usize,
    },
    /// The text does not begin with a scheme and a `:`.
    #[error("the URL has no scheme: begin with one such as `sqlite:` or `redis://`")]
    Scheme,
    /// The URL of a store on the network lacks the `//`.
    #[error("`//` is missing after `{scheme}:`: write `{scheme}://HOST`")]
    NoSlashes {
        /// The scheme, in lower case.
        scheme: String,
    },
    /// The scheme stands for a Unix socket, which no store supports.
    #[error("`{scheme}:` names a socket, and sockets are not supported: write `redis://HOST:PORT`")]
    Socket {
        /// The scheme, in lower case.
        scheme: String,
    },
    /// The URL of a store in a file or in memory has a host, or a relative path after `//`.
    #[error("`{scheme}:` has no host: write `{scheme}:PATH`, or `{scheme}:///PATH` for an absolute path")]
    HostNotAllowed {
        /// The scheme, in lower case.
        scheme: String,
    },
    /// An `@` is in another place than between the credentials and the hosts.
    #[error(
        "an `@` is out of place: one `@` stands between the password and the host; elsewhere write it `%40`, and \
         in a password also `/` as `%2F`, `?` as `%3F`, `#` as `%23`"
    )]
    UnencodedAt,
    /// The URL of a store on the network contains a `#`.
    #[error("a `#` is out of place: a store URL has no fragment; write it `%23`")]
    Fragment,
    /// A `%` is not followed by two hex digits, or the decoded text is not UTF-8 or contains NUL.
    #[error("{0} is not percent-encoded UTF-8 without NUL: write `%` itself as `%25`")]
    Encoding(Part),
    /// The URL has no host.
    #[error("the URL names no host: write `{scheme}://HOST`")]
    NoHost {
        /// The scheme, in lower case.
        scheme: String,
    },
    /// A host is empty or contains a character that is not allowed.
    #[error(
        "host {position} is empty or holds a space or a bracket: write `HOST`, `HOST:PORT` or `[IPV6]:PORT`"
    )]
    HostName {
        /// Position of the host, counted from 1.
        position: usize,
    },
    /// An IPv6 address is not valid or lacks its brackets.
    #[error("host {position} is not a valid address: an IPv6 address stands in brackets, `[::1]:PORT`")]
    Address {
        /// Position of the host, counted from 1.
        position: usize,
    },
    /// The text after a host's `:`, or after the `]` of an address, is not a port.
    #[error("host {position} has no valid port: after `:` write a number from 1 to 65535")]
    Port {
        /// Position of the host, counted from 1.
        position: usize,
    },
    /// A host stands in the list twice, perhaps in upper and lower case, or with and without the default port. In a quorum, one
    /// server that counts as two would have two votes.
    #[error("host {position} is host {earlier} again: name each server once")]
    SameHost {
        /// Position of the host, counted from 1.
        position: usize,
        /// Position of the host's first occurrence, counted from 1.
        earlier: usize,
    },
    /// An option is not `name=value`, or its name is not made of letters, digits, `_` and `-`.
    #[error("option {position} is not `name=value`, with a name of letters, digits, `_` and `-`")]
    OptionSyntax {
        /// Position of the option, counted from 1.
        position: usize,
    },
    /// The name of an option sounds like a credential, such as `token`.
    #[error(
        "the option `{name}` would show a credential: write the password before the host, `USER:PASSWORD@HOST`, or \
         name a file with `password_file`"
    )]
    Credential {
        /// The option's name.
        name: String,
    },
    /// An option appears twice.
    #[error("the option `{name}` is given twice: keep one")]
    Duplicate {
        /// The option's name.
        name: String,
    },
    /// The store does not know an option.
    #[error("the store has no option `{name}`: it knows {known}")]
    Unknown {
        /// The option's name.
        name: String,
        /// The names of the store's options, as a list in words.
        known: String,
    },
    /// The value of an option is not a length of time.
    #[error("the option `{name}` is not a duration: {source}")]
    Duration {
        /// The option's name.
        name: String,
        /// What is wrong with the value.
        source: InvalidDuration,
    },
    /// The value of an option is 0, and must be longer.
    #[error("`{name}` must be longer than 0")]
    Zero {
        /// The option's name.
        name: String,
    },
    /// The value of an option is not one of the words that it allows.
    #[error("the option `{name}` takes {choices}")]
    Choice {
        /// The option's name.
        name: String,
        /// The allowed words, as a list.
        choices: String,
    },
    /// The value of an option is not a mode that a file of the store can have.
    #[error(
        "the option `{name}` is not the mode of a file: write it in octal digits, such as `0660`, with read and write \
         for the owner, and no bits but the permissions of owner, group and others"
    )]
    FileMode {
        /// The option's name.
        name: String,
    },
    /// An option that needs a value has an empty one.
    #[error("the option `{name}` is empty: give it a value, or leave it out")]
    NoValue {
        /// The option's name.
        name: String,
    },
}

/// A part of a store URL that is percent-decoded.
///
/// # Examples
/// ```
/// use tenure_endpoint::{Part, StoreUrl, InvalidUrl};
///
/// let refused = StoreUrl::parse("redis://ada:s3cr3t%@cache.example").unwrap_err();
/// assert_eq!(refused, InvalidUrl::Encoding(Part::Password));
/// // The error names the part and does not repeat its text.
/// assert!(!refused.to_string().contains("s3cr3t"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The user name, before the `:`.
    User,
    /// The password, between the `:` and the `@`.
    Password,
    /// One of the hosts.
    Host,
    /// The path after the hosts, or, for a store in a file, after the scheme.
    Path,
    /// The value of the option with this name.
    Option(String),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("the user"),
            Self::Password => f.write_str("the password"),
            Self::Host => f.write_str("a host"),
            Self::Path => f.write_str("the path"),
            Self::Option(name) => write!(f, "the option `{name}`"),
        }
    }
}

/// The messages of an error and of its causes in one text, for an error without a source, such as one of
/// [`Fault::Invalid`].
///
/// # Examples
/// ```
/// use tenure_endpoint::{tls_config, with_causes};
///
/// let refused = tls_config(Some("/nowhere/ca.pem".as_ref()), None).unwrap_err();
/// assert!(with_causes(&refused).ends_with("(PEM): No such file or directory (os error 2)"));
/// ```
pub fn with_causes(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Error for settings that cannot be used.
pub(crate) fn invalid(message: impl fmt::Display) -> BackendError {
    BackendError::new(Fault::Invalid, Effect::None, message.to_string())
}
