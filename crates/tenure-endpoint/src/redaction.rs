//! Masks option values that may be passwords, for a store URL that is shown.

use std::borrow::Cow;

use crate::password_file::PASSWORD_FILE;

/// The option that names the file of the sentinels' password.
const SENTINEL_PASSWORD_FILE: &str = "sentinel_password_file";

/// Options whose values are not secret, so a shown URL contains them.
///
/// An option that is missing here works, but its value is shown as `***`. A test checks that the list has every option
/// of every store.
const SHOWN: [&str; 32] = [
    "acl",
    "application_name",
    "ca",
    "cert",
    "command_timeout",
    "connect_timeout",
    "connections",
    "drift",
    "durable",
    "fencing",
    "host",
    "key",
    "layout",
    "max_lease",
    "member_timeout",
    "mode",
    "options",
    PASSWORD_FILE,
    "registry",
    "replica_wait",
    "replicas",
    "schema",
    "sentinel_user",
    SENTINEL_PASSWORD_FILE,
    "spin",
    "ssl-mode",
    "sslmode",
    "sweep_after",
    "table",
    "target_session_attrs",
    "tick_time",
    "time_zone",
];

/// Parts of the names of credential options, also in other clients' URLs (`passwd`, `sslpassword`, `auth_token`).
const CREDENTIALS: [&str; 9] = [
    "pass", "pwd", "secret", "token", "auth", "cred", "apikey", "api_key", "api-key",
];

/// Returns whether an option of this name would carry a credential.
pub(crate) fn sounds_like_a_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ![PASSWORD_FILE, SENTINEL_PASSWORD_FILE].contains(&name.as_str())
        && CREDENTIALS.iter().any(|word| name.contains(word))
}

/// Returns `text`, the end of a URL from behind its scheme or its hosts, with `***` for the values of options outside
/// `SHOWN`.
pub(crate) fn path_and_query(text: &str) -> String {
    let Some((path, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let pairs: Vec<_> = query.split('&').map(masked_pair).collect();
    format!("{path}?{}", pairs.join("&"))
}

pub(crate) fn is_shown(name: &str) -> bool {
    SHOWN.contains(&name)
}

fn masked_pair(text: &str) -> Cow<'_, str> {
    match text.split_once('=') {
        Some((name, _)) if !is_shown(name) => format!("{name}=***").into(),
        _ => text.into(),
    }
}
