//! The options of `run` and `hold` that describe the lock.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;

use super::parse_duration;

pub(super) const DEFAULT_LEASE: &str = "30s";
/// Shortest lease. A shorter one could not be renewed in time over a network.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// The keys, the mode, and the time limits of a lock.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct LockArgs {
    /// What to lock. Several keys are one lock: all or nothing, in any order
    #[arg(value_name = "KEY")]
    positional: Vec<String>,

    /// A key that may begin with `-` (`--key=-n`), for keys that come from variables. Repeatable
    #[arg(long = "key", value_name = "KEY", help_heading = "The lock")]
    verbatim: Vec<String>,

    /// First come, first served
    #[arg(long, conflicts_with_all = ["shared", "exclusive", "permits"], help_heading = "The lock")]
    fair: bool,

    /// The read side of a read-write lock
    #[arg(short, long, conflicts_with_all = ["exclusive", "permits"], help_heading = "The lock")]
    shared: bool,

    /// The write side of a read-write lock
    #[arg(short = 'x', long, conflicts_with = "permits", help_heading = "The lock")]
    exclusive: bool,

    /// How many permits of a semaphore to take
    #[arg(long, value_name = "N", requires = "of", help_heading = "The lock")]
    permits: Option<NonZeroU32>,

    /// How many permits the semaphore has
    #[arg(long, value_name = "M", requires = "permits", help_heading = "The lock")]
    of: Option<NonZeroU32>,

    /// How long to wait for the lock (default: for ever)
    ///
    /// Connecting to the store is part of it, but has at least a second, and 30 s without this option. The lock is tried at
    /// least once, so `0s` does not wait.
    #[arg(short, long, value_name = "D", value_parser = parse_duration)]
    #[arg(
        allow_hyphen_values = true,
        conflicts_with = "no_wait",
        help_heading = "Waiting"
    )]
    wait: Option<Duration>,

    /// Do not wait for the lock; a store that does not answer is given up after some 5 s
    #[arg(short, long, help_heading = "Waiting")]
    no_wait: bool,

    /// How long the store keeps the lock without a renewal; tenure renews after a third of it
    #[arg(long, value_name = "D", default_value = DEFAULT_LEASE, value_parser = parse_lease)]
    #[arg(allow_hyphen_values = true, help_heading = "Holding")]
    pub lease: Duration,

    /// After this time, `run` stops the command and `hold` gives the lock up (default: no limit)
    #[arg(long, value_name = "D", value_parser = more_than_zero)]
    #[arg(allow_hyphen_values = true, help_heading = "Holding")]
    pub max_hold: Option<Duration>,

    /// Keep the lock for at least this time: if the work ends earlier, `tenure` itself ends only then
    #[arg(long, value_name = "D", default_value = "0s", hide_default_value = true)]
    #[arg(value_parser = parse_duration, allow_hyphen_values = true, help_heading = "Holding")]
    pub at_least: Duration,

    /// Name of the holder in `ls` (default: user@host:pid)
    #[arg(long, value_name = "TEXT", help_heading = "Holding")]
    pub label: Option<String>,
}

/// Time limit of the wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait until the lock is granted.
    Forever,
    /// Wait for at most this time.
    AtMost(Duration),
    /// Do not wait.
    Not,
}

/// The kind and mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A mutex.
    Mutex {
        /// First come, first served.
        fair: bool,
    },
    /// The read side of a read-write lock.
    Read,
    /// The write side of a read-write lock.
    Write,
    /// Permits of a semaphore.
    Permits {
        /// Number of permits to take.
        take: NonZeroU32,
        /// Number of permits that the semaphore has.
        of: NonZeroU32,
    },
}

impl LockArgs {
    /// Returns the keys. Keys given with `--key` come last.
    pub fn keys(&self) -> Vec<&str> {
        self.positional
            .iter()
            .chain(&self.verbatim)
            .map(String::as_str)
            .collect()
    }

    /// Returns the kind and mode of the lock.
    pub fn kind(&self) -> Kind {
        match (self.permits, self.of) {
            (Some(take), Some(of)) => Kind::Permits { take, of },
            _ if self.shared => Kind::Read,
            _ if self.exclusive => Kind::Write,
            _ => Kind::Mutex { fair: self.fair },
        }
    }

    /// Returns how long to wait.
    pub fn wait(&self) -> Wait {
        match self.wait {
            Some(limit) => Wait::AtMost(limit),
            None if self.no_wait => Wait::Not,
            None => Wait::Forever,
        }
    }

    /// Returns the message for an error in the keys and options that the parser itself cannot detect.
    pub(super) fn contradiction(&self) -> Option<String> {
        let keys = self.keys();
        if keys.is_empty() {
            return Some("no key was given: name what to lock".to_owned());
        }
        let mut numbered = keys.iter().enumerate();
        if let Some((_, twice)) = numbered.find(|(at, key)| keys[..*at].contains(key)) {
            return Some(format!(
                "the key {twice:?} was given twice: a lock would wait for itself; name it once"
            ));
        }
        if let Kind::Permits { take, of } = self.kind()
            && take > of
        {
            return Some(format!(
                "--permits {take} --of {of} can never be had: ask for at most {of}"
            ));
        }
        match self.max_hold {
            Some(max) if max < self.at_least => Some(
                "--at-least is longer than --max-hold: the lock would end before it may; make it shorter"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

pub(super) fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(span) if span < SHORTEST_LEASE => {
            Err("a lease is at least `1s`, or it could not be renewed in time".to_owned())
        }
        other => other,
    }
}

pub(super) fn more_than_zero(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("it would end before it began; leave the option out for no limit".to_owned())
        }
        other => other,
    }
}
