//! The grammar of store URLs: from one line of text to its parts.

use percent_encoding::percent_decode_str;

use crate::error::{Part, UrlError};
use crate::host::Host;
use crate::secret::Secret;
use crate::shown;
use crate::url::{PASSWORD_FILE, StoreUrl};

/// The longest URL accepted, in bytes.
const MAX_LEN: usize = 8 * 1024;

/// The schemes without hosts, where everything after the colon is the path.
const WITHOUT_HOSTS: [&str; 2] = ["sqlite", "memory"];

/// Reads a store URL.
pub(crate) fn parse(text: &str) -> Result<StoreUrl, UrlError> {
    if text.is_empty() {
        return Err(UrlError::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(UrlError::TooLong { limit: MAX_LEN });
    }
    if let Some(at) = text.find(char::is_control) {
        return Err(UrlError::ControlCharacter { at });
    }
    let (scheme, rest) = text.split_once(':').ok_or(UrlError::Scheme)?;
    let scheme = parse_scheme(scheme)?;
    if scheme
        .split(['+', '-'])
        .any(|part| part == "unix" || part == "socket")
    {
        return Err(UrlError::Socket { scheme });
    }
    if WITHOUT_HOSTS.contains(&scheme.as_str()) {
        parse_path_form(scheme, rest)
    } else {
        parse_host_form(scheme, rest)
    }
}

/// Accepts a letter followed by letters, digits, `+`, `-` and `.`.
fn parse_scheme(text: &str) -> Result<String, UrlError> {
    let fits = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if fits {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(UrlError::Scheme)
    }
}

/// Reads what follows the colon of `sqlite:` and `memory:`.
fn parse_path_form(scheme: String, rest: &str) -> Result<StoreUrl, UrlError> {
    let (path, query) = split_query(rest);
    let path = match path.strip_prefix("//") {
        None => path,
        Some(absolute) if absolute.starts_with('/') => absolute,
        // `sqlite://data.db` is a host to some and a relative path to others.
        Some(_) => return Err(UrlError::HostNotAllowed { scheme }),
    };
    Ok(StoreUrl {
        shown: format!("{scheme}:{}", shown::path_and_query(rest)),
        user: None,
        password: None,
        hosts: Vec::new(),
        path: decode(path, Part::Path)?,
        pairs: parse_query(query)?,
        scheme,
    })
}

/// Reads what follows the colon of a store on the network.
fn parse_host_form(scheme: String, rest: &str) -> Result<StoreUrl, UrlError> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(UrlError::NoSlashes { scheme });
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An `@`, `/`, `?` or `#` that was left raw in a password leaves an `@` too many, or one behind the authority.
    // Refusing both here is what lets the rest of the URL be shown.
    if tail.contains('@') || authority.matches('@').count() > 1 {
        return Err(UrlError::UnencodedAt);
    }
    if tail.contains('#') {
        return Err(UrlError::Fragment);
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
        // Whoever forgot the colon wrote the password here.
        _ => "***@".to_owned(),
    };
    Ok(StoreUrl {
        shown: format!("{scheme}://{shown_user}{hosts}{}", shown::path_and_query(tail)),
        user: Some(decode(user, Part::User)?).filter(|user| !user.is_empty()),
        password: Some(decode(password, Part::Password)?)
            .filter(|text| !text.is_empty())
            .map(Secret::new),
        hosts: parse_hosts(hosts, &scheme)?,
        path: decode(path.strip_prefix('/').unwrap_or(path), Part::Path)?,
        pairs,
        scheme,
    })
}

/// Reads one host or several, separated by commas.
fn parse_hosts(text: &str, scheme: &str) -> Result<Vec<Host>, UrlError> {
    if text.is_empty() {
        return Err(UrlError::NoHost {
            scheme: scheme.to_owned(),
        });
    }
    text.split(',')
        .enumerate()
        .map(|(index, host)| Host::parse(host, index + 1))
        .collect()
}

/// Splits at the first `?`; no `?` and nothing after it are the same.
fn split_query(text: &str) -> (&str, &str) {
    text.split_once('?').unwrap_or((text, ""))
}

/// Reads `name=value&name=value`, in order, each name once.
fn parse_query(text: &str) -> Result<Vec<(String, String)>, UrlError> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    if text.is_empty() {
        return Ok(pairs);
    }
    for (index, pair) in text.split('&').enumerate() {
        let position = index + 1;
        let (name, value) = pair.split_once('=').ok_or(UrlError::OptionSyntax { position })?;
        if name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        {
            return Err(UrlError::OptionSyntax { position });
        }
        let name = name.to_owned();
        if shown::sounds_like_a_credential(&name) {
            return Err(UrlError::Credential { name });
        }
        if pairs.iter().any(|(earlier, _)| *earlier == name) {
            return Err(UrlError::Duplicate { name });
        }
        let value = decode(value, Part::Option(name.clone()))?;
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// Percent-decodes one part; `+` stays `+`, as everywhere but in forms.
pub(crate) fn decode(text: &str, part: Part) -> Result<String, UrlError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if every_percent_is_followed_by_hex(text) && !decoded.contains('\0') => {
            Ok(decoded.into())
        }
        _ => Err(UrlError::Encoding(part)),
    }
}

/// Refuses what a lenient decoder would pass through: `%zz`, `%1`, a final `%`.
fn every_percent_is_followed_by_hex(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let mut digits = after.bytes();
        let mut hex = || digits.next().is_some_and(|digit| digit.is_ascii_hexdigit());
        hex() && hex()
    })
}
