//! Translates the server's error replies into [`BackendError`]s, by their codes and texts.

use std::error::Error;

use redis::RedisError;
use tenure_backend::{BackendError, Effect, Fault};

use crate::error::{cause_of, unanswered};

pub(crate) const WRONG_PASSWORD: &str = "Redis refused the user or the password: correct them, see whether the user is enabled (ACL LIST), or leave \
     them out if this Redis asks for none";

pub(crate) const NOT_A_LOCK: &str = "the key is held by another kind of client, or it or the counter `tenure_tokens` holds data that is no \
     lock: use the `layout` of that client, or choose another key, or for the counter another database";

/// Says in the layouts `plain` and `spring` what [`NOT_A_LOCK`] says in the layout `redisson`.
pub(crate) const OTHER_FORMAT: &str = "the key is held by another kind of client, or holds another program's data: it is no mutex of this \
     layout; choose another key, or another `layout`";

const MAY_NOT_WAIT: &str = "this user may not call WAIT, with which `replicas` asks for acknowledgements, so the lock does not count as held: \
     give it `+wait` (ACL SETUSER), or leave `replicas` out";

const KNOWS_NO_WAIT: &str = "this server has no WAIT, with which `replicas` asks for acknowledgements, so the lock does not count as held: \
     leave `replicas` out";

/// Fault and message for the error codes that a call can meet; [`OTHER`] is for all others. Errors that may pass by
/// themselves are `Unavailable`, so that releases are retried and waiters keep waiting. The others last until an
/// operator changes something, so callers get them at once.
const REFUSALS: &[(&[&str], Fault, &str)] = &[
    // LOADING passes when the server has loaded its data.
    (
        &["LOADING"],
        Fault::Unavailable,
        "Redis is still loading its data",
    ),
    // Passes when another client disconnects.
    (
        &[MAX_CLIENTS],
        Fault::Unavailable,
        "Redis has as many clients as its `maxclients` allows: close some, or raise it",
    ),
    // DENIED lasts until the server's configuration changes: it is in protected mode.
    (
        &["DENIED"],
        Fault::Denied,
        "Redis is in protected mode and serves clients of its own machine only: give it a password or users, or set \
         `protected-mode no` in a network of its own",
    ),
    // BUSY passes when the script ends or is killed.
    (
        &["BUSY"],
        Fault::Unavailable,
        "Redis is running a script or function that does not end: try again, or end it with SCRIPT KILL",
    ),
    // READONLY and MASTERDOWN pass when the replica has been promoted, or the host name leads to the master.
    (
        &["READONLY", "MASTERDOWN"],
        Fault::Unavailable,
        "this Redis is a replica, which grants no locks: name its master, or wait until it has become one",
    ),
    // NOREPLICAS passes when the replicas are back.
    (
        &["NOREPLICAS"],
        Fault::Unavailable,
        "Redis takes no writes, since replicas that it needs are away",
    ),
    // MISCONF passes when Redis can save a snapshot, or write its append-only file, again: it retries by itself.
    (
        &["MISCONF"],
        Fault::Unavailable,
        "Redis refuses writes because it cannot save its data: see its log and its disk; until then held locks \
         end with their leases",
    ),
    // OOM passes when keys expire. Most of ours expire within seconds after their leases, so a memory full of locks
    // empties.
    (
        &["OOM"],
        Fault::Unavailable,
        "Redis has reached `maxmemory` and takes no new locks: free memory, or give it more; locks that are held \
         are still renewed",
    ),
    // NOAUTH, WRONGPASS and NOPERM last until credentials or permissions are changed.
    (
        &["NOAUTH"],
        Fault::Denied,
        "Redis asks for a password: put it into the URL, as in `redis://:PASSWORD@HOST`, or name a `password_file`",
    ),
    (&["WRONGPASS"], Fault::Denied, WRONG_PASSWORD),
    (
        &["NOPERM"],
        Fault::Denied,
        "this user may not do what locks need: give it EVALSHA, EVAL, SCRIPT LOAD, the commands of the scripts, \
         all keys and all channels (ACL SETUSER)",
    ),
    // WRONGTYPE lasts until the program that uses the key deletes it.
    (&["WRONGTYPE"], Fault::Store, NOT_A_LOCK),
    // This message is for `redis://` URLs. With `redis+cluster://`, `cluster/route.rs` repeats such a call, or reports
    // that no node serves the slot.
    (
        &["CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN"],
        Fault::Unsupported,
        "this Redis is a node of a cluster, and does not serve this key: write `redis+cluster://` in the URL, or see \
         `CLUSTER INFO`",
    ),
];

/// A code of our own for the reply `ERR max number of clients reached`.
const MAX_CLIENTS: &str = "MAXCLIENTS";

/// Fault and message for any other error code.
const OTHER: (Fault, &str) = (Fault::Store, "Redis refused the call: see the cause");

/// Words of the error when a script calls a command for which the user lacks permission.
const DENIED_IN_SCRIPT: &str = "executing the script can't";

/// Words of errors during login, and their codes. The redis crate drops the codes, so errors are recognized by words.
const HANDSHAKE: &[(&str, &str)] = &[
    ("max number of clients reached", MAX_CLIENTS),
    ("permission", "NOPERM"),
    ("Authentication required", "NOAUTH"),
    ("busy running a script", "BUSY"),
    ("is not allowed in cluster mode", "MOVED"),
];

/// An error reply, split into its code and the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) code: &'a str,
    pub(crate) details: &'a str,
}

impl<'a> Refusal<'a> {
    pub(crate) fn new(code: &'a str, details: &'a str) -> Self {
        Refusal { code, details }
    }

    /// The error reply that the server sent; `None` if no reply came.
    pub(crate) fn of(error: &'a RedisError) -> Option<Self> {
        Some(Self::new(error.code()?, error.detail().unwrap_or_default()))
    }

    /// Parses an error that a script caught and returned as text.
    pub(crate) fn parse(text: &'a str) -> Self {
        let (code, details) = text.split_once(' ').unwrap_or((text, ""));
        Self::new(code, details)
    }

    /// Restores the code that the redis crate drops from errors during login.
    pub(crate) fn during_handshake(mut self) -> Self {
        let known = HANDSHAKE.iter().find(|(words, _)| self.details.contains(words));
        if let ("ERR", Some((_, code))) = (self.code, known) {
            self.code = code;
        }
        self
    }

    /// Returns the error code of the command that failed. Before Redis 7, the error of a script contains that of the
    /// command, as in `ERR … @user_script: 37: -OOM …`. An error that the script caught starts with `@user_script`.
    fn code(&self) -> &'a str {
        let is_framed = self.code.starts_with("@user_script") || self.details.contains("@user_script");
        let within = |code: &&'static str| self.details.contains(&format!(": -{code} "));
        let mut codes = REFUSALS.iter().flat_map(|(codes, ..)| codes.iter().copied());
        match codes.find(within) {
            Some(code) if is_framed => code,
            _ if self.details.contains(DENIED_IN_SCRIPT) && (is_framed || self.code == "ERR") => "NOPERM",
            _ => self.code,
        }
    }

    /// Returns whether a replica has refused the call. The client then connects again: the host name may lead to
    /// another server.
    pub(crate) fn is_from_replica(&self) -> bool {
        matches!(self.code(), "READONLY" | "MASTERDOWN")
    }

    /// Translates the error reply. Its effect is `None` if the server refused the call before the script's first write.
    /// Errors that can stop a script after a write, such as a key of another type, have the effect `Unknown`.
    pub(crate) fn error(&self) -> BackendError {
        let (code, details) = (self.code(), self.details);
        let known = REFUSALS.iter().find(|(codes, ..)| codes.contains(&code));
        let (fault, message) = known.map_or(OTHER, |(_, fault, message)| (*fault, *message));
        // True for an error inside the script. Permissions for the call itself are checked before the script runs.
        let in_script =
            self.code.starts_with('@') || details.contains("script:") || details.contains(DENIED_IN_SCRIPT);
        let after_writes =
            matches!(code, "WRONGTYPE" | "ERR") || code.starts_with('@') || code == "NOPERM" && in_script;
        let effect = if after_writes {
            Effect::Unknown
        } else {
            Effect::None
        };
        if message == NOT_A_LOCK {
            // No cause is added: Redis's own text only says that the value has another type.
            return BackendError::new(fault, effect, message);
        }
        BackendError::because(fault, effect, message, format!("{code} {details}"))
    }
}

/// Translates the error of a call, whether the server refused it or no reply came.
pub(crate) fn translate(error: &RedisError) -> BackendError {
    Refusal::of(error).map_or_else(|| unanswered(error), |refusal| refusal.error())
}

/// Error for a call that writes at a server whose role is that of a replica, with the message of one that refused it.
pub(crate) fn from_replica(effect: Effect) -> BackendError {
    let refused = Refusal::new("READONLY", "the server's role is `slave`").error();
    BackendError::because(refused.fault(), effect, refused.to_string(), cause_of(&refused))
}

/// The error if the server refused `WAIT` for as long as nothing is changed: the user lacks the permission, or the server
/// does not know the command. `None` for any other refusal. A write came before `WAIT`, so the effect is unknown.
pub(crate) fn wait_refused(error: &RedisError) -> Option<BackendError> {
    let refusal = Refusal::of(error)?;
    let (fault, message) = match refusal.code() {
        "NOPERM" => (Fault::Denied, MAY_NOT_WAIT),
        "ERR" if refusal.details.starts_with("unknown command") => (Fault::Unsupported, KNOWS_NO_WAIT),
        _ => return None,
    };
    let cause = format!("{} {}", refusal.code, refusal.details);
    Some(BackendError::because(fault, Effect::Unknown, message, cause))
}

/// Returns whether the server refused a call, without effect, because the user may not access one of its keys. The
/// client then splits the call: other keys may be permitted.
pub(crate) fn lacks_key_permission(error: &BackendError) -> bool {
    let says_so = |cause: &(dyn Error + 'static)| {
        let words = cause.to_string();
        words.contains("access") && words.contains("key")
    };
    (error.fault(), error.effect()) == (Fault::Denied, Effect::None) && error.source().is_some_and(says_so)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> (Fault, Effect) {
        let error = Refusal::parse(text).error();
        (error.fault(), error.effect())
    }

    #[test]
    fn a_refusal_is_classified_by_its_code() {
        for (text, fault, effect) in [
            (
                "READONLY You can't write against a read only replica.",
                Fault::Unavailable,
                Effect::None,
            ),
            (
                "CLUSTERDOWN Hash slot not served",
                Fault::Unsupported,
                Effect::None,
            ),
            ("ERR wrong number of arguments", Fault::Store, Effect::Unknown),
            (
                "ERR unknown command 'X', with args beginning with: 'permission -ASK : -BUSY '",
                Fault::Store,
                Effect::Unknown,
            ),
        ] {
            assert_eq!(judged(text), (fault, effect), "{text}");
        }
    }

    #[test]
    fn handshake_refusals_are_classified_by_their_text() {
        for (details, fault) in [
            ("Authentication required.", Fault::Denied),
            (
                "this user has no permissions to run the 'select' command",
                Fault::Denied,
            ),
            (
                "Redis is busy running a script. You can only call SCRIPT KILL.",
                Fault::Unavailable,
            ),
            ("SELECT is not allowed in cluster mode", Fault::Unsupported),
        ] {
            let error = Refusal::new("ERR", details).during_handshake().error();
            assert_eq!(
                (error.fault(), error.effect()),
                (fault, Effect::None),
                "{details}"
            );
        }
    }

    #[test]
    fn a_missing_key_permission_is_told_from_a_command_one() {
        for (text, is_a_keys) in [
            ("NOPERM No permissions to access a key", true),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                true,
            ),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                false,
            ),
            (
                "NOPERM No permissions to access a key script: 0123, on @user_script:7.",
                false,
            ),
        ] {
            assert_eq!(
                lacks_key_permission(&Refusal::parse(text).error()),
                is_a_keys,
                "{text}"
            );
        }
    }

    #[test]
    fn a_refused_wait_is_permanent_unless_the_role_changed() {
        for (reply, fault) in [
            (
                "NOPERM this user has no permissions to run the 'wait' command",
                Some(Fault::Denied),
            ),
            (
                "ERR unknown command 'WAIT', with args beginning with: '1' ",
                Some(Fault::Unsupported),
            ),
            ("ERR WAIT cannot be used with replica instances.", None),
        ] {
            let reply = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
            let error = reply.and_then(redis::Value::extract_error);
            let refused = wait_refused(&error.expect_err("an error reply"));
            let expected = fault.map(|fault| (fault, Effect::Unknown));
            assert_eq!(refused.map(|error| (error.fault(), error.effect())), expected);
        }
    }

    #[test]
    fn refusals_inside_script_errors_are_found_before_redis_7() {
        let within = |error: &str| {
            format!("ERR Error running script (call to f_0123): @user_script:37: @user_script: 37: -{error}")
        };
        let full = within("OOM command not allowed when used memory > 'maxmemory'.");
        assert_eq!(judged(&full), (Fault::Unavailable, Effect::None));
        let replica = within("READONLY You can't write against a read only replica.");
        assert!(Refusal::parse(&replica).is_from_replica());
        assert!(!Refusal::parse(&full).is_from_replica());
        let another = within("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(judged(&another), (Fault::Store, Effect::Unknown));
        // The text of an error that a script caught and returned.
        let handed_on = "@user_script: 37: -READONLY You can't write against a read only replica.";
        assert!(Refusal::parse(handed_on).is_from_replica());
        assert_eq!(judged(handed_on), (Fault::Unavailable, Effect::None));
        let denied = "@user_script: 40: The user executing the script can't run this command or subcommand";
        assert_eq!(judged(denied), (Fault::Denied, Effect::Unknown));
        assert_eq!(
            judged("@user_script: 40: what is this?"),
            (Fault::Store, Effect::Unknown)
        );
    }
}
