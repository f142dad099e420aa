//! The verbs and their own options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::lock::{DEFAULT_LEASE, more_than_zero, parse_lease};
use super::{LockArgs, help, objects, parse_duration};

/// All verbs, in the order of `--help`. Each has a manual page.
pub const VERBS: [&str; 11] = [
    "run",
    "hold",
    "ls",
    "show",
    "watch",
    "evict",
    "elect",
    "doctor",
    "schema",
    "completions",
    "man",
];

/// Run a command under a lock that every machine respects.
#[derive(Parser, Clone, Debug, PartialEq)]
#[command(name = "tenure", version, max_term_width = 100)]
#[command(after_help = help::EXAMPLES, after_long_help = help::TENURE)]
#[command(infer_long_args = false)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
    /// The verb and its options.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options that stand before or after any verb.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The store, as a URL. A password in it is visible in `ps`: prefer TENURE_URL or --url-file
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub url: Option<String>,
    /// A file whose first line is the store's URL
    #[arg(long, global = true, value_name = "PATH")]
    pub url_file: Option<PathBuf>,
    /// Print JSON objects, one per line
    #[arg(long, global = true)]
    pub json: bool,
    /// No notes on stderr, only errors and warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Also print progress and debug messages on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// A verb of the command line.
#[derive(Subcommand, Clone, Debug, PartialEq)]
pub enum Verb {
    /// Run a command under a lock
    Run(Run),
    /// Hold a lock for another program, which reads events and closes stdin to release
    Hold(Hold),
    /// List keys that are held or have a queue
    Ls(Ls),
    /// Show one key: all holders and the queue
    Show(Show),
    /// Print each change as a line, until interrupted
    Watch(Watch),
    /// Free a key by force; its holder learns at once or at its next renewal
    Evict(Evict),
    /// Run a command only while this candidate leads an election
    Elect(Elect),
    /// Check the store for everything that weakens a lock
    #[command(after_long_help = objects::DOCTOR)]
    Doctor,
    /// Print the SQL statements that create the tables of an SQL store
    Schema(Schema),
    /// Print a script that completes this command line in a shell
    #[command(after_long_help = objects::COMPLETIONS)]
    Completions {
        /// The shell that will run the script
        shell: Shell,
    },
    /// Print the manual page of this command, or of one verb
    #[command(after_long_help = objects::MAN)]
    Man {
        /// The verb; without one, the page of `tenure` itself
        #[arg(value_name = "VERB", value_parser = PossibleValuesParser::new(VERBS))]
        verb: Option<String>,
        /// Write every page into this folder instead, as NAME.1
        #[arg(long, value_name = "DIR", conflicts_with = "verb")]
        out: Option<PathBuf>,
    },
}

/// Arguments of `tenure run`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure run KEY [KEY...] [OPTIONS] -- CMD [ARG...]")]
#[command(after_help = help::RUN_SHORT, after_long_help = help::RUN)]
pub struct Run {
    /// The keys, and the options of the lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Exit code when the lock was not acquired; 0 suits cron
    #[arg(short = 'E', long, value_name = "N", default_value_t = 124)]
    #[arg(help_heading = "Waiting")]
    pub busy_exit: u8,
    /// What the command gets when the lock is lost
    #[arg(long, value_name = "WHAT", default_value = "term", help_heading = "Holding")]
    pub on_lost: OnLost,
    /// Time between TERM and KILL, at most a third of the lease (default: a sixth of it)
    #[arg(long, value_name = "D", value_parser = parse_duration)]
    #[arg(allow_hyphen_values = true, help_heading = "Holding")]
    pub grace: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Run {
    pub(super) fn contradiction(&self) -> Option<String> {
        no_command(&self.command)
            .or_else(|| grace_too_long(self.grace, self.lock.lease))
            .or_else(|| self.lock.contradiction())
    }
}

fn no_command(command: &[OsString]) -> Option<String> {
    command.is_empty().then(|| "no command was given".to_owned())
}

/// Formats a duration as the command line accepts it, rounded down to milliseconds.
fn in_words(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Returns the time between TERM and KILL: `asked`, or else a sixth of the lease `given` by the store, but at most a
/// third of that lease.
pub fn grace(asked: Option<Duration>, given: Duration) -> Duration {
    asked.unwrap_or(given / 6).min(given / 3)
}

fn grace_too_long(asked: Option<Duration>, lease: Duration) -> Option<String> {
    let most = lease / 3;
    asked.filter(|grace| *grace > most).map(|_| {
        format!(
            "--grace is more than a third of the lease: TERM would come before a late renewal; \
             make it {} or less, or the lease longer",
            in_words(most)
        )
    })
}

/// The treatment of a command whose lock is lost.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// TERM, and KILL after --grace.
    Term,
    /// KILL at once.
    Kill,
    /// Only a warning.
    Ignore,
}

/// Arguments of `tenure hold`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure hold KEY [KEY...] [OPTIONS]", after_long_help = objects::HOLD)]
pub struct Hold {
    /// The keys, and the options of the lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Hold until a signal comes (INT, TERM, HUP or QUIT), whatever stdin does
    #[arg(long, help_heading = "Holding")]
    pub no_stdin: bool,
}

/// Arguments of `tenure ls`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_long_help = objects::LS)]
pub struct Ls {
    /// Only keys that begin with this text
    pub prefix: Option<String>,
    /// At most this many keys
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Arguments of `tenure show`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_long_help = objects::SHOW)]
pub struct Show {
    /// The key to show
    pub key: String,
}

/// Arguments of `tenure evict`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure evict KEY (--claim ID | --all)", after_long_help = objects::EVICT)]
#[command(group = ArgGroup::new("target").required(true))]
pub struct Evict {
    /// The key to free
    pub key: String,
    /// Only the holder or waiter with this ID, as `show` prints it
    #[arg(long, value_name = "ID", group = "target", value_parser = parse_claim)]
    pub claim: Option<String>,
    /// Every holder; waiters keep waiting
    #[arg(long, group = "target")]
    pub all: bool,
}

/// Rejects an empty id: an unset shell variable must not match every holder.
fn parse_claim(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "it names no holder; give an ID as `tenure show` shows it, or --all for every holder".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// Arguments of `tenure watch`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_long_help = objects::WATCH)]
pub struct Watch {
    /// Only keys that begin with this text
    pub prefix: Option<String>,
}

/// Arguments of `tenure schema`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_long_help = objects::SCHEMA)]
pub struct Schema {
    /// Create the tables in the store, if they are missing
    #[arg(long)]
    pub apply: bool,
}

/// Arguments of `tenure elect`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure elect NAME [OPTIONS] -- CMD [ARG...]")]
#[command(after_help = help::ELECT_SHORT, after_long_help = help::ELECT)]
pub struct Elect {
    /// The name of the election: of all candidates with this name one leads
    pub name: String,
    /// How long the lead lasts without a renewal; tenure renews after a third of it
    #[arg(long, value_name = "D", default_value = DEFAULT_LEASE, value_parser = parse_lease)]
    #[arg(allow_hyphen_values = true)]
    pub lease: Duration,
    /// Stop the command after this time as leader, and exit with 123 (default: no limit)
    #[arg(long, value_name = "D", value_parser = more_than_zero, allow_hyphen_values = true)]
    pub max_hold: Option<Duration>,
    /// What the command gets when the lead is lost
    #[arg(long, value_name = "WHAT", default_value = "term")]
    pub on_lost: Stop,
    /// Time between TERM and KILL, at most a third of the lease (default: a sixth of it)
    #[arg(long, value_name = "D", value_parser = parse_duration, allow_hyphen_values = true)]
    pub grace: Option<Duration>,
    /// Name of the candidate in `show` (default: user@host:pid)
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Elect {
    pub(super) fn contradiction(&self) -> Option<String> {
        no_command(&self.command).or_else(|| grace_too_long(self.grace, self.lease))
    }
}

/// The way in which a command is stopped when its candidate no longer leads.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// TERM, and KILL after --grace.
    Term,
    /// KILL at once.
    Kill,
}

impl From<Stop> for OnLost {
    fn from(stop: Stop) -> OnLost {
        match stop {
            Stop::Term => OnLost::Term,
            Stop::Kill => OnLost::Kill,
        }
    }
}
