//! Parses a store URL into its parts.

use crate::error::{InvalidUrl, Part};
use crate::host::Host;
use crate::password_file::PASSWORD_FILE;
use crate::percent::decode;
use crate::redaction;
use crate::secret::Secret;
use crate::url::StoreUrl;

/// The longest URL accepted, in bytes.
const MAX_LEN: usize = 8 * 1024;

/// The option that names a Unix socket, or its folder. A URL with it needs no host.
const SOCKET: &str = "host";

/// Schemes without hosts: everything between the colon and the `?` is a path.
const WITHOUT_HOSTS: [&str; 2] = ["sqlite", "memory"];

impl StoreUrl {
    /// Parses a store URL of at most 8 KiB.
    ///
    /// # Errors
    ///
    /// [`InvalidUrl`] names the part that is wrong and says what to write instead. The error never contains the password.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<StoreUrl, InvalidUrl> {
    if text.is_empty() {
        return Err(InvalidUrl::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(InvalidUrl::TooLong { limit: MAX_LEN });
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(InvalidUrl::ControlCharacter { at });
    }
    let (scheme, rest) = text.split_once(':').ok_or(InvalidUrl::Scheme)?;
    let scheme = parse_scheme(scheme)?;
    if scheme
        .split(['+', '-'])
        .any(|part| part == "unix" || part == "socket")
    {
        return Err(InvalidUrl::Socket { scheme });
    }
    if WITHOUT_HOSTS.contains(&scheme.as_str()) {
        parse_path_form(scheme, rest)
    } else {
        parse_host_form(scheme, rest)
    }
}

/// Checks the scheme, a letter followed by letters, digits, `+`, `-` and `.`, and converts it to lower case.
fn parse_scheme(text: &str) -> Result<String, InvalidUrl> {
    let fits = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if fits {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(InvalidUrl::Scheme)
    }
}

fn parse_path_form(scheme: String, rest: &str) -> Result<StoreUrl, InvalidUrl> {
    let (path, query) = split_query(rest);
    let path = match path.strip_prefix("//") {
        None => path,
        Some(absolute) if absolute.starts_with('/') => absolute,
        // Refused as ambiguous: in `sqlite://data.db` the part `data.db` could be a host or a relative path.
        Some(_) => return Err(InvalidUrl::HostNotAllowed { scheme }),
    };
    Ok(StoreUrl {
        shown: format!("{scheme}:{}", redaction::path_and_query(rest)),
        shown_hosts: 0..0,
        user: None,
        password: None,
        hosts: Vec::new(),
        path: decode(path, Part::Path)?,
        pairs: parse_query(query)?,
        scheme,
    })
}

fn parse_host_form(scheme: String, rest: &str) -> Result<StoreUrl, InvalidUrl> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(InvalidUrl::NoSlashes { scheme });
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // If a password contains a raw `@`, `/`, `?` or `#`, the URL has a second `@`, or an `@` after the first `/`, `?`
    // or `#`. Both are errors here, so no part of a password is taken for a host or a path and shown.
    if tail.contains('@') || authority.matches('@').count() > 1 {
        return Err(InvalidUrl::UnencodedAt);
    }
    if tail.contains('#') {
        return Err(InvalidUrl::Fragment);
    }
    let (credentials, hosts) = match authority.split_once('@') {
        Some((credentials, hosts)) => (credentials, hosts),
        None => ("", authority),
    };
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (path, query) = split_query(tail);
    let pairs = parse_query(query)?;
    let has_password = !password.is_empty() || pairs.iter().any(|(name, _)| name == PASSWORD_FILE);
    let shown_user = match user {
        "" => String::new(),
        user if has_password => format!("{user}@"),
        // A user name without a password may be a password whose colon was forgotten, so it is masked.
        _ => "***@".to_owned(),
    };
    let before_hosts = format!("{scheme}://{shown_user}");
    Ok(StoreUrl {
        shown: format!("{before_hosts}{hosts}{}", redaction::path_and_query(tail)),
        shown_hosts: before_hosts.len()..before_hosts.len() + hosts.len(),
        user: Some(decode(user, Part::User)?).filter(|user| !user.is_empty()),
        password: Some(decode(password, Part::Password)?)
            .filter(|text| !text.is_empty())
            .map(Secret::new),
        hosts: match hosts {
            // `postgres:///shop?host=/run/postgresql` names the folder of a Unix socket.
            "" if pairs.iter().any(|(name, _)| name == SOCKET) => Vec::new(),
            hosts => parse_hosts(hosts, &scheme)?,
        },
        path: decode(path.strip_prefix('/').unwrap_or(path), Part::Path)?,
        pairs,
        scheme,
    })
}

/// The port that the store's own settings give to a host without one, to find a server that a URL names once with its port and
/// once without. `None` if no store has the scheme.
fn default_port(scheme: &str) -> Option<u16> {
    Some(match scheme {
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "redlock" | "redlocks" => 6379,
        "redis+sentinel" | "rediss+sentinel" => 26379,
        "postgres" | "postgresql" => 5432,
        "mysql" | "mariadb" => 3306,
        "etcd" | "etcds" => 2379,
        "zookeeper" | "zookeepers" => 2181,
        _ => return None,
    })
}

/// Splits the list of hosts. Refuses a list that names a server twice, also if only one of the two names is in upper case, or
/// has the default port.
fn parse_hosts(text: &str, scheme: &str) -> Result<Vec<Host>, InvalidUrl> {
    if text.is_empty() {
        return Err(InvalidUrl::NoHost {
            scheme: scheme.to_owned(),
        });
    }
    let port = default_port(scheme);
    let is_same = |one: &Host, other: &Host| {
        one.name().eq_ignore_ascii_case(other.name()) && one.port().or(port) == other.port().or(port)
    };
    let mut hosts: Vec<Host> = Vec::new();
    for (index, text) in text.split(',').enumerate() {
        let position = index + 1;
        let host = Host::parse(text, position)?;
        if let Some(same) = hosts.iter().position(|earlier| is_same(earlier, &host)) {
            let earlier = same + 1;
            return Err(InvalidUrl::SameHost { position, earlier });
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// Splits at the first `?` into path and query. A missing query is an empty one.
fn split_query(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

/// Parses `name=value&name=value` and keeps the order. Refuses repeated names, and names of credentials.
fn parse_query(text: &str) -> Result<Vec<(String, String)>, InvalidUrl> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    if text.is_empty() {
        return Ok(pairs);
    }
    for (index, pair) in text.split('&').enumerate() {
        let position = index + 1;
        let (name, value) = pair
            .split_once('=')
            .ok_or(InvalidUrl::OptionSyntax { position })?;
        if name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        {
            return Err(InvalidUrl::OptionSyntax { position });
        }
        let name = name.to_owned();
        if redaction::sounds_like_a_credential(&name) {
            return Err(InvalidUrl::Credential { name });
        }
        if pairs.iter().any(|(earlier, _)| *earlier == name) {
            return Err(InvalidUrl::Duplicate { name });
        }
        let value = decode(value, Part::Option(name.clone()))?;
        pairs.push((name, value));
    }
    Ok(pairs)
}
