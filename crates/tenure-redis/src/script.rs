//! The scripts, and how a call of one is written. What each does is said above it, in `scripts/`.

use std::sync::LazyLock;

use redis::{Arg, Cmd, RedisWrite, ToRedisArgs};
use tenure_backend::TURN;

/// The parts that scripts share. Where one belongs stands `--: include` and its name.
const SHARED: [(&str, &str); 4] = [
    ("redisson_place", include_str!("../scripts/redisson_place.lua")),
    ("redisson_owners", include_str!("../scripts/redisson_owners.lua")),
    (
        "redisson_foreign",
        include_str!("../scripts/redisson_foreign.lua"),
    ),
    ("redisson_draw", include_str!("../scripts/redisson_draw.lua")),
];

/// One of the scripts, with the hash by which a server that has it finds it.
pub(crate) struct Script {
    text: String,
    hash: String,
}

macro_rules! script {
    ($name:literal) => {
        LazyLock::new(|| Script::new(include_str!(concat!("../scripts/", $name, ".lua"))))
    };
}

pub(crate) static ACQUIRE: LazyLock<Script> = script!("redisson_acquire");
pub(crate) static RELEASE: LazyLock<Script> = script!("redisson_release");
pub(crate) static RENEW: LazyLock<Script> = script!("redisson_renew");
pub(crate) static SHOW: LazyLock<Script> = script!("redisson_show");
pub(crate) static TOGETHER: LazyLock<Script> = script!("redisson_together");

static ALL: [&LazyLock<Script>; 5] = [&ACQUIRE, &RELEASE, &RENEW, &SHOW, &TOGETHER];

/// The commands that make a server know every script.
pub(crate) fn load_all() -> impl Iterator<Item = Cmd> {
    ALL.into_iter().map(|script| {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&script.text);
        command
    })
}

/// The command that asks which scripts a server has.
pub(crate) fn are_known() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("EXISTS");
    for script in ALL {
        command.arg(&script.hash);
    }
    command
}

impl Script {
    fn new(source: &str) -> Self {
        let mut text = source.to_owned();
        for (name, part) in SHARED {
            text = text.replace(&format!("--: include {name}\n"), part);
        }
        text = text.replace("TURN_MS", &TURN.as_millis().to_string());
        // Remarks are for readers. From somebody who has not said a password the server takes no text of more than 16 kB,
        // and does not even say why.
        let text: String = text
            .split_inclusive('\n')
            .filter(|line| !is_remark(line))
            .collect();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }

    /// Begins a call on so many keys, with room for so many arguments of so many bytes in all.
    pub(crate) fn on(&'static self, keys: usize, arguments: usize, bytes: usize) -> Command {
        let mut command = Command {
            script: self,
            written: Cmd::with_capacity(3 + keys + arguments, 64 + bytes),
        };
        command.text("EVALSHA").text(&self.hash).number(keys as u64);
        command
    }
}

fn is_remark(line: &str) -> bool {
    line.trim_start().starts_with("--")
}

/// A call of a script, as it is written: first the keys, then the arguments.
pub(crate) struct Command {
    script: &'static Script,
    written: Cmd,
}

impl Command {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.written.write_arg(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        number.write_redis_args(&mut self.written);
        self
    }

    pub(crate) fn as_cmd(&self) -> &Cmd {
        &self.written
    }

    /// The same call with the script's text instead of its hash: a server that runs it knows it from then on.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut full = redis::cmd("EVAL");
        full.arg(&self.script.text);
        for argument in self.written.args_iter().skip(2) {
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

    /// A server then says that a password is missing.
    #[test]
    fn every_script_is_short_enough_for_who_has_not_said_a_password() {
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
