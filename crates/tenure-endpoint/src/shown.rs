//! How the options of a store URL are shown, and which are refused: a password may stand there.

use std::borrow::Cow;

use crate::url::PASSWORD_FILE;

/// The options that stores take, whose values are no secrets and are shown. One that is missing here works, and is shown as
/// `***`: a test looks for it in the sources of the stores.
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

/// What the names of credentials contain, also those of other clients (`passwd`, `sslpassword`, `auth_token`).
const CREDENTIALS: [&str; 9] = [
    "pass", "pwd", "secret", "token", "auth", "cred", "apikey", "api_key", "api-key",
];

/// Tells names whose values must not be shown.
pub(crate) fn sounds_like_a_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name != PASSWORD_FILE && CREDENTIALS.iter().any(|word| name.contains(word))
}

/// What follows the scheme or the hosts, as it was written, but for the values of options that no store takes: whoever
/// hopes for one may hope to give a password by it.
pub(crate) fn path_and_query(text: &str) -> String {
    let Some((path, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let pairs: Vec<_> = query.split('&').map(pair).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Whether an option of that name is one that a store takes.
pub(crate) fn is_shown(name: &str) -> bool {
    SHOWN.contains(&name)
}

fn pair(text: &str) -> Cow<'_, str> {
    match text.split_once('=') {
        Some((name, _)) if !is_shown(name) => format!("{name}=***").into(),
        _ => text.into(),
    }
}
