//! What the server refuses: its code and its words, in the contract's.
//! Not here: calls that have no answer (`error.rs`).

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
    // Our credentials and rights were read once, and no time makes them others.
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

/// What stands in the words of a refusal whose code was lost: by our client, which keeps none of those that it meets while
/// it introduces itself, or by the server, which says so of a command within a script.
const BY_WORDS: &[(&str, &str)] = &[
    ("executing the script can't", "NOPERM"),
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

    /// What it is, wherever that stands.
    fn code(&self) -> &'a str {
        if self.code != "ERR" {
            return self.code;
        }
        // Before Redis 7 a command's refusal within a script stood in the midst of the script's.
        let within = |code: &&&str| self.details.contains(&format!("-{code} "));
        let codes = REFUSALS.iter().flat_map(|(codes, ..)| *codes);
        if let Some(code) = codes.into_iter().find(within) {
            return code;
        }
        let by_words = BY_WORDS.iter().find(|(words, _)| self.details.contains(words));
        by_words.map_or(self.code, |(_, code)| code)
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
        let in_script = details.contains("script:") || details.contains("executing the script");
        let midst = matches!(code, "WRONGTYPE" | "ERR") || code == "NOPERM" && in_script;
        let effect = if midst { Effect::Unknown } else { Effect::None };
        BackendError::because(fault, effect, message, format!("{code} {details}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> (Fault, Effect) {
        let error = Refusal::read(text).error();
        (error.fault(), error.effect())
    }

    #[test]
    fn a_refusal_is_known_by_its_code_or_where_that_was_lost_by_its_words() {
        for (text, fault, effect) in [
            (
                "READONLY You can't write against a read only replica.",
                Fault::Unavailable,
                Effect::None,
            ),
            ("ERR Authentication required.", Fault::Denied, Effect::None),
            (
                "ERR Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                Fault::Unavailable,
                Effect::None,
            ),
            (
                "ERR SELECT is not allowed in cluster mode",
                Fault::Unsupported,
                Effect::None,
            ),
            (
                "CLUSTERDOWN Hash slot not served",
                Fault::Unsupported,
                Effect::None,
            ),
            ("ERR wrong number of arguments", Fault::Store, Effect::Unknown),
        ] {
            assert_eq!(judged(text), (fault, effect), "{text}");
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
    }
}
