//! Keeps passwords in the options of a store URL from being shown.

use std::borrow::Cow;

use crate::password_file::PASSWORD_FILE;

/// Options of the stores whose values are not secret and may be shown.
///
/// An option that is missing here works, but its value is shown as `***`. A test compares the list with the sources of
/// the stores.
const SHOWN: [&str; 17] = [
    "application_name",
    "ca",
    "cert",
    "command_timeout",
    "connect_timeout",
    "fencing",
    "key",
    "layout",
    "max_lease",
    "options",
    PASSWORD_FILE,
    "replica_wait",
    "replicas",
    "spin",
    "ssl-mode",
    "sslmode",
    "table",
];

/// Words in the names of credentials, including those of other clients (`passwd`, `sslpassword`, `auth_token`).
const CREDENTIALS: [&str; 9] = [
    "pass", "pwd", "secret", "token", "auth", "cred", "apikey", "api_key", "api-key",
];

/// Returns whether an option of this name would carry a credential.
pub(crate) fn sounds_like_a_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name != PASSWORD_FILE && CREDENTIALS.iter().any(|word| name.contains(word))
}

/// Returns the part of a URL after the scheme or the hosts, with `***` for the values of options that no store has.
///
/// Such an option may be an attempt to give a password.
pub(crate) fn path_and_query(text: &str) -> String {
    let Some((path, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let pairs: Vec<_> = query.split('&').map(masked_pair).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Returns whether a store has an option of this name, so that its value may be shown.
pub(crate) fn is_shown(name: &str) -> bool {
    SHOWN.contains(&name)
}

fn masked_pair(text: &str) -> Cow<'_, str> {
    match text.split_once('=') {
        Some((name, _)) if !is_shown(name) => format!("{name}=***").into(),
        _ => text.into(),
    }
}
