//! The command line: one definition from which parser, help and completions are generated.

mod duration;
mod help;
mod lock;
mod objects;
mod parse;
mod tips;
mod verbs;

pub use duration::parse_duration;
pub use lock::{Kind, LockArgs, Wait};
pub use parse::{BadUsage, parse};
pub use verbs::{
    Cli, Elect, Evict, Global, Hold, Ls, OnLost, Run, Schema, Show, Stop, VERBS, Verb, Watch, grace,
};
