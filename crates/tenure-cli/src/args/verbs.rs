//! The verbs and their own options.
//! What `run` and `hold` share is in `lock`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::{LockArgs, help, parse_duration};

/// Run a command under a lock that every machine respects.
#[derive(Parser, Clone, Debug, PartialEq)]
#[command(name = "tenure", version, max_term_width = 100)]
#[command(after_help = help::EXAMPLES, after_long_help = help::TENURE)]
#[command(
    disable_help_subcommand = true,
    infer_long_args = false,
    subcommand_value_name = "VERB"
)]
#[command(subcommand_help_heading = "Verbs")]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options that stand before or after any verb.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Global {
    /// The store, as a URL. A password in it is visible in `ps`: prefer TENURE_URL or --url-file
    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with = "url_file",
        help_heading = "Everywhere"
    )]
    pub url: Option<String>,
    /// A file whose first line is the store's URL
    #[arg(long, global = true, value_name = "PATH", help_heading = "Everywhere")]
    pub url_file: Option<PathBuf>,
    /// Print JSON objects, one a line
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,
    /// No notes on stderr, only errors
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Everywhere"
    )]
    pub quiet: bool,
    /// More on stderr
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub verbose: bool,
}

/// What to do.
#[derive(Subcommand, Clone, Debug, PartialEq)]
pub enum Verb {
    /// Run a command under a lock
    Run(Run),
    /// Hold a lock for another program, which reads events and closes stdin to release
    Hold(Hold),
    /// List keys with holders or waiters
    Ls(Ls),
    /// Show one key: all holders and the queue
    Show(Show),
    /// Free a key by force; its holder learns at its next renewal
    Evict(Evict),
    /// Print a script that completes this command line in a shell
    Completions {
        /// For which shell
        shell: Shell,
    },
}

/// `tenure run`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure run KEY [KEY...] [OPTIONS] -- CMD [ARG...]")]
#[command(after_help = help::RUN_SHORT, after_long_help = help::RUN)]
pub struct Run {
    /// What to lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Exit code when the lock was not acquired; 0 suits cron
    #[arg(
        short = 'E',
        long,
        value_name = "N",
        default_value_t = 124,
        help_heading = "Waiting"
    )]
    pub busy_exit: u8,
    /// What the command gets when the lock is lost
    #[arg(long, value_name = "WHAT", default_value = "term", help_heading = "Holding")]
    pub on_lost: OnLost,
    /// Time between TERM and KILL, at most a third of the lease (default: a sixth of it)
    #[arg(long, value_name = "D", value_parser = parse_duration, help_heading = "Holding")]
    grace: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Run {
    /// Time between TERM and KILL.
    pub fn grace(&self) -> Duration {
        self.grace.unwrap_or(self.lock.lease / 6)
    }

    pub(super) fn contradiction(&self) -> Option<String> {
        if self.command.is_empty() {
            return Some("no command was given".to_owned());
        }
        if self.grace() > self.lock.lease / 3 {
            let most = self.lock.lease / 3;
            return Some(format!(
                "--grace is more than a third of the lease: TERM would come before a late renewal; \
                 make it {most:?} or less, or the lease longer"
            ));
        }
        self.lock.contradiction()
    }
}

/// What happens to a command whose lock is lost.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// TERM, and KILL a grace later.
    Term,
    /// KILL.
    Kill,
    /// Nothing but a warning.
    Ignore,
}

/// `tenure hold`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure hold KEY [KEY...] [OPTIONS]", after_long_help = help::HOLD)]
pub struct Hold {
    /// What to lock.
    #[command(flatten)]
    pub lock: LockArgs,
    /// Hold until INT or TERM, whatever stdin does
    #[arg(long, help_heading = "Holding")]
    pub no_stdin: bool,
}

/// `tenure ls`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Ls {
    /// Only keys that begin so
    pub prefix: Option<String>,
    /// At most that many keys
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// `tenure show`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Show {
    /// Which key
    pub key: String,
}

/// `tenure evict`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(override_usage = "tenure evict KEY (--claim ID | --all)")]
#[command(group = ArgGroup::new("whom").required(true))]
pub struct Evict {
    /// Which key
    pub key: String,
    /// Only this holder or waiter, as `show` names it
    #[arg(long, value_name = "ID", group = "whom")]
    pub claim: Option<String>,
    /// Every holder and waiter
    #[arg(long, group = "whom")]
    pub all: bool,
}
