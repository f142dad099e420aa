//! The Lua scripts, and the commands that load and call them. Each script in `scripts/` is described at its top.

use std::borrow::Cow;
use std::sync::OnceLock;

use redis::{Arg, Cmd, Pipeline, ToSingleRedisArg};
use tenure_backend::{BackendError, Kind, TURN};

use crate::claims::names::{MUTEX_CHANNEL, READ_WRITE_CHANNEL, SEMAPHORE_CHANNEL, is_once_per_slot};
use crate::claims::slot::{scope, several_slots, slot};

/// The most permits that one claim takes, and the most expired permits that one call removes. A script that handles
/// no more than these runs for less than a millisecond.
pub(crate) const MAX_PERMITS: u32 = 1000;

macro_rules! part {
    ($name:literal) => {
        ($name, include_str!(concat!("../../scripts/", $name, ".lua")))
    };
}

/// Parts that several scripts share. A script includes one with a line `--: include NAME`. The lines are replaced in
/// the order of this list, so a part stands before the parts that it includes itself.
const INCLUDES: [(&str, &str); 14] = [
    part!("string_value"),
    part!("string_place"),
    part!("renew_each"),
    part!("redisson_mutex"),
    part!("redisson_read_write"),
    part!("redisson_leave"),
    part!("redisson_place"),
    part!("redisson_owners"),
    part!("redisson_foreign"),
    part!("redisson_draw"),
    part!("redisson_semaphore"),
    part!("redisson_permits"),
    part!("redisson_records"),
    part!("redisson_vacate"),
];

/// How a script names keys that all locks share, and how it wakes waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// For a server that is no node of a cluster.
    Alone,
    /// For a node of a cluster: keys that all locks share exist once for each slot.
    Cluster,
    /// As `Cluster`, with messages that only subscribers at the node of the slot receive (Redis 7).
    ShardedCluster,
}

/// A script. Its texts are made when they are first needed: a program that takes mutexes needs four of fifteen scripts.
pub(crate) struct Script {
    source: &'static str,
    /// The part that the script includes as `kind`; empty if it includes none.
    kind: &'static str,
    /// The text in each dialect, in the order of [`Dialect`].
    texts: [OnceLock<ScriptText>; 3],
}

/// The text of a script, and the SHA-1 hash by which the server finds it.
struct ScriptText {
    text: String,
    hash: String,
}

/// What the name of the last key of each call in a cluster begins with. A tag of the slot follows, which the script
/// takes from the name.
///
/// No such key exists. So a node that has begun to move the slot to another refuses the call before the script
/// begins. Without this key the script could begin, and then fail at a key that is at the other node already.
const SLOT_KEY: &str = "tenure_slot";

/// Makes a [`Script`] from the name of its file, and from that of the part that it includes as `kind`, if any.
macro_rules! script {
    ($name:literal $(, $kind:literal)?) => {
        Script {
            source: include_str!(concat!("../../scripts/", $name, ".lua")),
            kind: concat!($($kind)?),
            texts: [const { OnceLock::new() }; 3],
        }
    };
}

pub(crate) static BATCH: Script = script!("redisson_batch");

/// The scripts of one layout. A kind of lock that the layout does not serve has none.
pub(crate) struct Layout {
    mutex: ScriptSet,
    read_write: Option<ScriptSet>,
    semaphore: Option<ScriptSet>,
    /// Shows locks of every kind.
    pub(crate) inspect: Script,
}

/// The scripts of one kind of lock.
///
/// All sets reply in the same form. Their arguments differ in two ways: a claim on a mutex has no mode; and the
/// scripts of [`STRING`] take the label of unfair claims too, and for a release the lock's channels, not the client's
/// UUID.
pub(crate) struct ScriptSet {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) renew: Script,
    /// Prefix of the channel on which unfair waiters are woken.
    pub(crate) channel: &'static str,
    /// Under load, unfair claims are placed and holders released in calls of [`BATCH`].
    pub(crate) batches: bool,
}

pub(crate) static REDISSON: Layout = Layout {
    mutex: ScriptSet {
        acquire: script!("redisson_acquire"),
        release: script!("redisson_release"),
        renew: script!("redisson_renew", "redisson_mutex"),
        channel: MUTEX_CHANNEL,
        batches: true,
    },
    read_write: Some(ScriptSet {
        acquire: script!("redisson_acquire_any", "redisson_read_write"),
        release: script!("redisson_release_any", "redisson_read_write"),
        renew: script!("redisson_renew", "redisson_read_write"),
        channel: READ_WRITE_CHANNEL,
        batches: false,
    }),
    semaphore: Some(ScriptSet {
        acquire: script!("redisson_acquire_any", "redisson_semaphore"),
        release: script!("redisson_release_any", "redisson_semaphore"),
        renew: script!("redisson_renew", "redisson_semaphore"),
        channel: SEMAPHORE_CHANNEL,
        batches: false,
    }),
    inspect: script!("redisson_inspect"),
};

/// The scripts of the layouts `plain` and `spring`.
pub(crate) static STRING: Layout = Layout {
    mutex: ScriptSet {
        acquire: script!("string_acquire"),
        release: script!("string_release"),
        renew: script!("string_renew"),
        // Not used: `plain` and `spring` have channels of their own, see `layout.rs`.
        channel: MUTEX_CHANNEL,
        batches: false,
    },
    read_write: None,
    semaphore: None,
    inspect: script!("string_inspect"),
};

impl Layout {
    /// Returns whether locks are strings, as in the layouts `plain` and `spring`.
    pub(crate) fn is_string(&self) -> bool {
        std::ptr::eq(self, &raw const STRING)
    }

    /// The scripts of mutexes, which a client loads into the server when it connects. The server gets any other
    /// script with the first call of it.
    pub(crate) fn first(&self) -> impl Iterator<Item = &Script> {
        let mutex = &self.mutex;
        let batch = mutex.batches.then_some(&BATCH);
        [&mutex.acquire, &mutex.release, &mutex.renew]
            .into_iter()
            .chain(batch)
    }

    /// The scripts for claims of this kind; `None` if the layout does not serve it.
    pub(crate) fn scripts(&'static self, kind: Kind) -> Option<&'static ScriptSet> {
        match kind {
            Kind::Mutex => Some(&self.mutex),
            Kind::ReadWrite => self.read_write.as_ref(),
            Kind::Semaphore { .. } => self.semaphore.as_ref(),
        }
    }

    /// The scripts for a claim of this kind; those of mutexes if the kind is unknown or not served. The mutex's
    /// release script reports the key's kind if that is another.
    pub(crate) fn scripts_or_mutex(&'static self, kind: Option<Kind>) -> &'static ScriptSet {
        kind.and_then(|kind| self.scripts(kind)).unwrap_or(&self.mutex)
    }
}

/// Operators, commas and braces, with the blanks that are left out of a script's text. No string literal of a script
/// contains one of these, so no literal changes.
const BETWEEN_BLANKS: [&str; 13] = [
    ", ", " = ", " == ", " ~= ", " .. ", " + ", " - ", " * ", " < ", " > ", " >= ", "{ ", " }",
];

impl Script {
    fn text(&self, dialect: Dialect) -> &ScriptText {
        self.texts[dialect as usize].get_or_init(|| {
            let text = self.written_for(dialect);
            let hash = redis::Script::new(&text).get_hash().to_owned();
            ScriptText { text, hash }
        })
    }

    fn written_for(&self, dialect: Dialect) -> String {
        let mut text = self
            .source
            .replace("include kind\n", &format!("include {}\n", self.kind));
        for (name, part) in INCLUDES {
            text = text.replace(&format!("--: include {name}\n"), part);
        }
        text = text.replace("TURN_MS", &TURN.as_millis().to_string());
        text = text.replace("MAX_PERMITS", &MAX_PERMITS.to_string());
        // Leaves comments and blanks out and shortens calls, to stay below 16 kB. If a client that has not logged in
        // sends a longer argument, the server does not answer `NOAUTH`, but closes the connection.
        let mut text: String = text
            .split_inclusive('\n')
            .map(str::trim_start)
            .filter(|line| !line.starts_with("--"))
            .collect();
        text = text.replace("redis.call(", "call(");
        text = text
            .replace("string.sub(", "sub(")
            .replace("tonumber(", "num(")
            .replace("math.max(", "max(");
        for spaced in BETWEEN_BLANKS {
            text = text.replace(spaced, spaced.trim());
        }
        if dialect == Dialect::Alone {
            let text = text.replace("..SCOPE", "");
            return format!("local call, sub, num, max = redis.call, string.sub, tonumber, math.max\n{text}");
        }
        if dialect == Dialect::ShardedCluster {
            text = text.replace("'PUBLISH'", "'SPUBLISH'");
            text = text.replace("'NUMSUB'", "'SHARDNUMSUB'");
        }
        format!(
            "local call, sub, num, max = redis.call, string.sub, tonumber, math.max\nlocal SCOPE = sub(table.remove(KEYS), {})\n{text}",
            SLOT_KEY.len() + 1
        )
    }

    /// The command that loads this script into a server.
    pub(crate) fn load(&self, dialect: Dialect) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text(dialect).text);
        command
    }

    /// The SHA-1 hash by which a server finds this script.
    pub(crate) fn hash(&self, dialect: Dialect) -> &str {
        &self.text(dialect).hash
    }

    /// Starts a call with `keys` keys. Reserves memory for these and `arguments` arguments, of `bytes` bytes in all.
    pub(crate) fn command(&'static self, keys: usize, arguments: usize, bytes: usize) -> Command {
        let mut command = Command {
            script: self,
            keys,
            calls: Pipeline::with_capacity(2),
        };
        let call = Cmd::with_capacity(3 + keys + arguments, 64 + bytes);
        command.calls.add_command(call);
        let hash = &self.text(Dialect::Alone).hash;
        command.arg("EVALSHA").arg(hash).arg(keys);
        command
    }
}

/// A script call in the form for a server that is no node of a cluster: first the keys, then the arguments.
pub(crate) struct Command {
    script: &'static Script,
    keys: usize,
    /// The call, and `ROLE` if that shall follow it.
    calls: Pipeline,
}

impl Command {
    /// Adds one key or argument: a number, text or bytes.
    pub(crate) fn arg(&mut self, arg: impl ToSingleRedisArg) -> &mut Self {
        self.calls.arg(arg);
        self
    }

    /// Makes `ROLE` follow the call.
    pub(crate) fn ask_role(&mut self) {
        self.calls.cmd("ROLE");
    }

    /// This call in the form for a server of this dialect. Fails for a node of a cluster if the keys are of several
    /// slots.
    pub(crate) fn in_dialect(&self, dialect: Dialect) -> Result<Cow<'_, Pipeline>, BackendError> {
        match dialect {
            Dialect::Alone => Ok(Cow::Borrowed(&self.calls)),
            _ => self.rewritten("EVALSHA", &self.script.text(dialect).hash, dialect),
        }
    }

    /// This call with the script's source instead of its hash. A server that runs the source also stores the script.
    pub(crate) fn with_source(&self, dialect: Dialect) -> Result<Cow<'_, Pipeline>, BackendError> {
        self.rewritten("EVAL", &self.script.text(dialect).text, dialect)
    }

    fn rewritten(
        &self,
        call: &str,
        script: &str,
        dialect: Dialect,
    ) -> Result<Cow<'_, Pipeline>, BackendError> {
        let call_by_hash = self.calls.cmd_iter().take(1);
        let parts = call_by_hash
            .flat_map(Cmd::args_iter)
            .skip(3)
            .filter_map(|part| match part {
                Arg::Simple(part) => Some(part),
                _ => None,
            });
        let parts: Vec<&[u8]> = parts.collect();
        let (keys, arguments) = parts.split_at(self.keys.min(parts.len()));
        let mut full = Pipeline::with_capacity(2);
        full.cmd(call).arg(script);
        if dialect == Dialect::Alone {
            parts.into_iter().fold(full.arg(self.keys), Pipeline::arg);
            for role in self.calls.cmd_iter().skip(1) {
                full.add_command(role.clone());
            }
            return Ok(Cow::Owned(full));
        }
        let lock = keys.iter().find(|key| !is_once_per_slot(key));
        let Some(lock) = lock.or(keys.first()) else {
            return Err(several_slots());
        };
        let (slot, scope) = (slot(lock), scope(slot(lock)));
        full.arg(self.keys + 1);
        for key in keys {
            if is_once_per_slot(key) && key != lock {
                full.arg([key, scope.as_bytes()].concat());
            } else if crate::claims::slot::slot(key) == slot {
                full.arg(key);
            } else {
                return Err(several_slots());
            }
        }
        full.arg(format!("{SLOT_KEY}{scope}"));
        arguments.iter().fold(&mut full, Pipeline::arg);
        Ok(Cow::Owned(full))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a client that has not logged in sends an argument beyond the limit, the server's error is not `NOAUTH`.
    #[test]
    fn every_script_fits_the_limit_before_authentication() {
        for layout in [&REDISSON, &STRING] {
            let sets = [
                Some(&layout.mutex),
                layout.read_write.as_ref(),
                layout.semaphore.as_ref(),
            ];
            let of_kinds = sets.into_iter().flatten();
            let scripts = of_kinds.flat_map(|set| [&set.acquire, &set.release, &set.renew]);
            for script in scripts.chain([&layout.inspect, &BATCH]) {
                for dialect in [Dialect::Alone, Dialect::Cluster, Dialect::ShardedCluster] {
                    let ScriptText { text, hash } = script.text(dialect);
                    assert!(text.len() < 16_384, "{hash}: {}", text.len());
                    assert!(!text.contains("--"), "{text}");
                }
            }
        }
    }

    fn parts(calls: &Pipeline) -> Vec<String> {
        let text = |part| match part {
            Arg::Simple(part) => String::from_utf8_lossy(part).into_owned(),
            other => panic!("{other:?}"),
        };
        calls.cmd_iter().flat_map(Cmd::args_iter).map(text).collect()
    }

    #[test]
    fn a_call_in_a_cluster_has_keys_of_one_slot_only() {
        let mut command = REDISSON.mutex.acquire.command(4, 1, 0);
        let keys = ["tenure_tokens", "{k}:a", "tenure_client:u", "tenure_in_flight:u"];
        keys.iter().for_each(|key| _ = command.arg(key));
        command.arg("owner");
        let sent = parts(&command.in_dialect(Dialect::Cluster).expect("one slot"));
        assert_eq!((&*sent[0], &*sent[2], sent.len()), ("EVALSHA", "5", 9));
        assert!(
            sent[3..8].iter().all(|key| slot(key.as_bytes()) == slot(b"k")),
            "{sent:?}"
        );
        assert_eq!((&*sent[4], &*sent[8]), ("{k}:a", "owner"));
        let full = parts(&command.with_source(Dialect::Cluster).expect("one slot"));
        assert_eq!((&*full[0], &full[2..]), ("EVAL", &sent[2..]));
        let alone = parts(&command.in_dialect(Dialect::Alone).expect("no slots"));
        assert_eq!(alone[3..7], keys);
    }

    #[test]
    fn keys_of_several_slots_are_never_sent() {
        let mut command = REDISSON.inspect.command(2, 0, 0);
        command.arg("a").arg("b");
        assert!(command.in_dialect(Dialect::ShardedCluster).is_err());
        assert!(command.with_source(Dialect::ShardedCluster).is_err());
        assert!(command.in_dialect(Dialect::Alone).is_ok());
    }
}
