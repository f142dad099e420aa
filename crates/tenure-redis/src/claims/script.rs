//! The Lua scripts, and the commands that load and call them. Each script in `scripts/` is described at its top.

use std::sync::LazyLock;

use redis::{Arg, Cmd, RedisWrite, ToRedisArgs};
use tenure_backend::{Kind, TURN};

use crate::claims::names::{MUTEX_CHANNEL, READ_WRITE_CHANNEL, SEMAPHORE_CHANNEL};
use crate::profile::MAX_PERMITS;

macro_rules! part {
    ($name:literal) => {
        ($name, include_str!(concat!("../../scripts/", $name, ".lua")))
    };
}

/// Parts that several scripts share. A script includes one with a line `--: include NAME`. A part stands here before the
/// parts that it includes itself.
const INCLUDES: [(&str, &str); 15] = [
    part!("redisson_mutex"),
    part!("redisson_read_write"),
    part!("redisson_leave"),
    part!("redisson_place"),
    part!("redisson_queued_kind"),
    part!("redisson_owners"),
    part!("redisson_foreign"),
    part!("redisson_read_left"),
    part!("redisson_draw"),
    part!("redisson_semaphore"),
    part!("redisson_semaphore_place"),
    part!("redisson_permits"),
    part!("redisson_vacate"),
    part!("redisson_records"),
    part!("redisson_end"),
];

/// A script, with the SHA-1 hash by which the server finds it.
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// A script, and the part that it includes as `kind`, if any.
macro_rules! script {
    ($name:literal $(, $kind:literal)?) => {
        LazyLock::new(|| {
            let source = include_str!(concat!("../../scripts/", $name, ".lua"));
            Script::new(source, concat!($($kind)?))
        })
    };
}

static ACQUIRE: LazyLock<Script> = script!("redisson_acquire");
static RELEASE: LazyLock<Script> = script!("redisson_release");
static RENEW: LazyLock<Script> = script!("redisson_renew", "redisson_mutex");
static INSPECT: LazyLock<Script> = script!("redisson_inspect");
pub(crate) static BATCH: LazyLock<Script> = script!("redisson_batch");
static RW_ACQUIRE: LazyLock<Script> = script!("redisson_acquire_any", "redisson_read_write");
static RW_RELEASE: LazyLock<Script> = script!("redisson_release_any", "redisson_read_write");
static RW_RENEW: LazyLock<Script> = script!("redisson_renew", "redisson_read_write");
static SEMAPHORE_ACQUIRE: LazyLock<Script> = script!("redisson_semaphore_acquire");
static SEMAPHORE_RELEASE: LazyLock<Script> = script!("redisson_semaphore_release");
static SEMAPHORE_RENEW: LazyLock<Script> = script!("redisson_renew", "redisson_semaphore");

/// The scripts of one layout. A kind of lock that the layout does not serve has none.
pub(crate) struct Layout {
    mutex: ScriptSet,
    read_write: Option<ScriptSet>,
    semaphore: Option<ScriptSet>,
    /// Shows locks of every kind.
    pub(crate) inspect: &'static LazyLock<Script>,
}

/// The scripts of one kind of lock.
///
/// All sets reply in the same form, and take the same arguments, except that a mutex's claims have no mode.
pub(crate) struct ScriptSet {
    pub(crate) acquire: &'static LazyLock<Script>,
    pub(crate) release: &'static LazyLock<Script>,
    pub(crate) renew: &'static LazyLock<Script>,
    /// Prefix of the channel on which unfair waiters are woken.
    pub(crate) channel: &'static str,
    /// Under load, unfair claims travel in calls of [`BATCH`].
    pub(crate) batches: bool,
}

pub(crate) static REDISSON: Layout = Layout {
    mutex: ScriptSet {
        acquire: &ACQUIRE,
        release: &RELEASE,
        renew: &RENEW,
        channel: MUTEX_CHANNEL,
        batches: true,
    },
    read_write: Some(ScriptSet {
        acquire: &RW_ACQUIRE,
        release: &RW_RELEASE,
        renew: &RW_RENEW,
        channel: READ_WRITE_CHANNEL,
        batches: false,
    }),
    semaphore: Some(ScriptSet {
        acquire: &SEMAPHORE_ACQUIRE,
        release: &SEMAPHORE_RELEASE,
        renew: &SEMAPHORE_RENEW,
        channel: SEMAPHORE_CHANNEL,
        batches: false,
    }),
    inspect: &INSPECT,
};

impl Layout {
    /// The scripts for claims of this kind; `None` if the layout does not serve it.
    pub(crate) fn scripts(&self, kind: Kind) -> Option<&ScriptSet> {
        match kind {
            Kind::Mutex => Some(&self.mutex),
            Kind::ReadWrite => self.read_write.as_ref(),
            Kind::Semaphore { .. } => self.semaphore.as_ref(),
        }
    }

    /// The scripts for a claim of a kind that may be unknown: the mutex's scripts then report which kind the key has.
    pub(crate) fn scripts_or_mutex(&self, kind: Option<Kind>) -> &ScriptSet {
        kind.and_then(|kind| self.scripts(kind)).unwrap_or(&self.mutex)
    }
}

static ALL: [&LazyLock<Script>; 11] = [
    &ACQUIRE,
    &RELEASE,
    &RENEW,
    &INSPECT,
    &BATCH,
    &RW_ACQUIRE,
    &RW_RELEASE,
    &RW_RENEW,
    &SEMAPHORE_ACQUIRE,
    &SEMAPHORE_RELEASE,
    &SEMAPHORE_RENEW,
];

/// The commands that load every script into a server.
pub(crate) fn load_all() -> impl Iterator<Item = Cmd> {
    ALL.into_iter().map(|script| {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&script.text);
        command
    })
}

/// The command that asks which of our scripts a server has.
pub(crate) fn check_loaded() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("EXISTS");
    for script in ALL {
        command.arg(&script.hash);
    }
    command
}

impl Script {
    fn new(source: &str, kind: &str) -> Self {
        let mut text = source.replace("include kind\n", &format!("include {kind}\n"));
        for (name, part) in INCLUDES {
            text = text.replace(&format!("--: include {name}\n"), part);
        }
        text = text.replace("TURN_MS", &TURN.as_millis().to_string());
        text = text.replace("MAX_PERMITS", &MAX_PERMITS.to_string());
        // Leaves comments and indentation out, to stay below 16 kB: before login, Redis refuses a longer argument as if the password were missing.
        let text: String = text
            .split_inclusive('\n')
            .map(str::trim_start)
            .filter(|line| !line.starts_with("--"))
            .collect();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }

    /// Starts a call with `keys` keys. Reserves memory for these and `arguments` arguments, of `bytes` bytes in all.
    pub(crate) fn command(&'static self, keys: usize, arguments: usize, bytes: usize) -> Command {
        let mut command = Command {
            script: self,
            cmd: Cmd::with_capacity(3 + keys + arguments, 64 + bytes),
        };
        command.text("EVALSHA").text(&self.hash).number(keys as u64);
        command
    }
}

/// A script call as sent to the server: first the keys, then the arguments.
pub(crate) struct Command {
    script: &'static Script,
    cmd: Cmd,
}

impl Command {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.cmd.write_arg(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        number.write_redis_args(&mut self.cmd);
        self
    }

    pub(crate) fn as_cmd(&self) -> &Cmd {
        &self.cmd
    }

    /// This call with the script's source instead of its hash. A server that runs the source also stores the script.
    pub(crate) fn with_source(&self) -> Cmd {
        let mut full = redis::cmd("EVAL");
        full.arg(&self.script.text);
        for argument in self.cmd.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                full.arg(argument);
            }
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before login, a server refuses a script above 16 kB as if a password were missing.
    #[test]
    fn every_script_fits_the_limit_before_authentication() {
        for script in ALL {
            assert!(
                script.text.len() < 16_384,
                "{}: {}",
                script.hash,
                script.text.len()
            );
            assert!(!script.text.contains("--"), "{}", script.text);
        }
    }
}
