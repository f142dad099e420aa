//! What the server refuses: its code and its words, in the contract's.
//! Not here: calls that have no answer (`error.rs`).

use std::error::Error;

use redis::ServerError;
use tenure_backend::{BackendError, Effect, Fault};

pub(crate) const WRONG_PASSWORD: &str = "Redis refused the user or the password: correct them, see whether the user is enabled (ACL LIST), or leave \
     them out if this Redis asks for none";

/// A key that is in somebody else's use.
pub(crate) const NO_LOCK: &str = "the key, or the counter `tenure_tokens`, holds something that is no lock's, so another program uses it: choose \
     another key, or for the counter another database";

/// What the server refuses, as which fault, and in which words. What waiting can help is `Unavailable`: a release is
/// repeated then, and whoever waits goes on waiting. What stays so until somebody changes something is told at once.
const REFUSALS: &[(&[&str], Fault, &str)] = &[
    // It ends when the data is read.
    (
        &["LOADING"],
        Fault::Unavailable,
        "Redis is still loading its data: try again",
    ),
    // It ends with the script, or when somebody kills it.
    (
        &["BUSY"],
        Fault::Unavailable,
        "Redis runs a script or function of somebody's that does not end: try again, or end it with SCRIPT KILL",
    ),
    // It ends when the replica has taken over, or the name leads to the master.
    (
        &["READONLY", "MASTERDOWN"],
        Fault::Unavailable,
        "this Redis is a replica, which grants no locks: name its master, or wait until it has become one",
    ),
    // It ends when they are back.
    (
        &["NOREPLICAS"],
        Fault::Unavailable,
        "Redis takes no writes, since replicas that it needs are away: try again",
    ),
    // It ends with the next snapshot, or write, that succeeds: Redis tries again by itself.
    (
        &["MISCONF"],
        Fault::Unavailable,
        "Redis refuses writes because it cannot save its data: see its log and its disk; until then held locks \
         end with their leases",
    ),
    // It ends when keys do, and all that we keep does within seconds of its lease: a memory that is full is not for long.
    (
        &["OOM"],
        Fault::Unavailable,
        "Redis has reached `maxmemory` and takes no new locks: free memory, or give it more; locks that are held \
         are still renewed",
    ),
    // Credentials and rights stay what they are until somebody changes them.
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
    // Whoever keeps it may keep it for ever.
    (&["WRONGTYPE"], Fault::Store, NO_LOCK),
    // A cluster stays one.
    (
        &["CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN"],
        Fault::Unsupported,
        "this Redis is a node of a cluster, which is not served: name a server that is none",
    ),
];

/// Any other: nobody knows whether it ends.
const OTHER: (Fault, &str) = (Fault::Store, "Redis refused the call: see the cause beneath");

/// So the server says of a command within a script that its user may not give.
const WITHIN: &str = "executing the script can't";

/// What our client keeps no code of, for it meets it while it introduces itself: what the words say then.
const GREETING: &[(&str, &str)] = &[
    ("permission", "NOPERM"),
    ("Authentication required", "NOAUTH"),
    ("busy running a script", "BUSY"),
    ("is not allowed in cluster mode", "MOVED"),
];

/// A refusal in its two parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) code: &'a str,
    pub(crate) details: &'a str,
}

impl<'a> Refusal<'a> {
    pub(crate) fn new(code: &'a str, details: &'a str) -> Self {
        Refusal { code, details }
    }

    pub(crate) fn of(error: &'a ServerError) -> Self {
        Self::new(error.code(), error.details().unwrap_or_default())
    }

    /// As a script hands it on.
    pub(crate) fn read(text: &'a str) -> Self {
        let (code, details) = text.split_once(' ').unwrap_or((text, ""));
        Self::new(code, details)
    }

    /// The same of one that was met while our client introduced itself.
    pub(crate) fn of_a_greeting(mut self) -> Self {
        let told = GREETING.iter().find(|(words, _)| self.details.contains(words));
        if let ("ERR", Some((_, code))) = (self.code, told) {
            self.code = code;
        }
        self
    }

    /// What it is. Before Redis 7 a command's refusal within a script stands in the midst of the script's own, behind the
    /// line, and has no code where a script hands it on.
    fn code(&self) -> &'a str {
        let is_framed = self.code.starts_with("@user_script") || self.details.contains("@user_script");
        let within = |code: &&'static str| self.details.contains(&format!(": -{code} "));
        let mut codes = REFUSALS.iter().flat_map(|(codes, ..)| codes.iter().copied());
        match codes.find(within) {
            Some(code) if is_framed => code,
            _ if self.details.contains(WITHIN) && (is_framed || self.code == "ERR") => "NOPERM",
            _ => self.code,
        }
    }

    /// Whether it is a replica's: the name may lead to another server by now.
    pub(crate) fn is_of_a_replica(&self) -> bool {
        matches!(self.code(), "READONLY" | "MASTERDOWN")
    }

    /// Most refusals come before a script's first write; those that may come in its midst (a right that is missing, a key of
    /// another kind) leave it unknown what was done.
    pub(crate) fn error(&self) -> BackendError {
        let (code, details) = (self.code(), self.details);
        let known = REFUSALS.iter().find(|(codes, ..)| codes.contains(&code));
        let (fault, message) = known.map_or(OTHER, |(_, fault, message)| (*fault, *message));
        // A right that the call itself lacks is looked at before the script begins.
        let in_script = self.code.starts_with('@') || details.contains("script:") || details.contains(WITHIN);
        let midst =
            matches!(code, "WRONGTYPE" | "ERR") || code.starts_with('@') || code == "NOPERM" && in_script;
        let effect = if midst { Effect::Unknown } else { Effect::None };
        BackendError::because(fault, effect, message, format!("{code} {details}"))
    }
}

/// Whether a call was refused, before anything was done, for a right to a key of its own: the others may be none of the
/// reason.
pub(crate) fn is_for_a_key(error: &BackendError) -> bool {
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
        let error = Refusal::read(text).error();
        (error.fault(), error.effect())
    }

    #[test]
    fn a_refusal_is_known_by_its_code() {
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
    fn what_was_met_while_we_introduced_ourselves_is_known_by_its_words() {
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
            let error = Refusal::new("ERR", details).of_a_greeting().error();
            assert_eq!(
                (error.fault(), error.effect()),
                (fault, Effect::None),
                "{details}"
            );
        }
    }

    #[test]
    fn a_right_to_a_key_is_told_from_a_right_to_a_command() {
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
            assert_eq!(is_for_a_key(&Refusal::read(text).error()), is_a_keys, "{text}");
        }
    }

    #[test]
    fn before_redis_7_a_refusal_stands_within_the_scripts_own() {
        let within = |said: &str| {
            format!("ERR Error running script (call to f_0123): @user_script:37: @user_script: 37: -{said}")
        };
        let full = within("OOM command not allowed when used memory > 'maxmemory'.");
        assert_eq!(judged(&full), (Fault::Unavailable, Effect::None));
        let replica = within("READONLY You can't write against a read only replica.");
        assert!(Refusal::read(&replica).is_of_a_replica());
        assert!(!Refusal::read(&full).is_of_a_replica());
        let another = within("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(judged(&another), (Fault::Store, Effect::Unknown));
        // As a script hands it on that goes on.
        let handed_on = "@user_script: 37: -READONLY You can't write against a read only replica.";
        assert!(Refusal::read(handed_on).is_of_a_replica());
        assert_eq!(judged(handed_on), (Fault::Unavailable, Effect::None));
        let denied = "@user_script: 40: The user executing the script can't run this command or subcommand";
        assert_eq!(judged(denied), (Fault::Denied, Effect::Unknown));
        assert_eq!(
            judged("@user_script: 40: what is this?"),
            (Fault::Store, Effect::Unknown)
        );
    }
}
