//! Tips of usage errors: what the user may have meant by an unknown option or verb.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::verbs::VERBS;

/// For an unknown option such as `-foo`, the parser suggests `-- -foo`, but `run` and `elect` take what follows `--` as
/// the command. Suggests `--key=-foo` instead for `run` and `hold`, and nothing for `elect`.
pub(super) fn fix_suggestion(error: &mut clap::Error, verb: Option<&str>, args: &[OsString]) {
    let Some(verb @ ("run" | "hold" | "elect")) = verb else {
        return;
    };
    if error.kind() != ErrorKind::UnknownArgument || error.remove(ContextKind::Suggested).is_none() {
        return;
    }
    let Some(ContextValue::String(refused)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    // The parser reports only `-f` of `-foo`, so look for the whole word.
    let whole = args
        .iter()
        .take_while(|word| *word != "--")
        .map(|word| word.to_string_lossy())
        .find(|word| word.starts_with(refused.as_str()));
    if let Some(key) = whole.filter(|_| verb != "elect") {
        let tip = StyledStr::from(format!("a key that begins with '-' is given as '--key={key}'"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
}

/// Words that other tools use as verbs, and what to write instead.
const OTHER_VERBS: [(&[&str], &str); 5] = [
    (
        &["lock", "exec", "with", "flock"],
        "'tenure run KEY -- CMD' runs a command under a lock",
    ),
    (
        &["unlock", "release", "free"],
        "a lock is released when its command ends; 'tenure evict' frees one by force",
    ),
    (
        &["status", "list", "info"],
        "'tenure ls' lists keys, 'tenure show KEY' shows one",
    ),
    (&["check", "ping"], "'tenure doctor' checks the store"),
    (&["version"], "'tenure --version' prints it"),
];

/// For an unknown verb, suggests what the user may mean, and lists all verbs.
pub(super) fn suggest_verb(error: &mut clap::Error) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let known = OTHER_VERBS
        .iter()
        .find(|(words, _)| words.contains(&word.as_str()));
    let mut tips = Vec::new();
    if let Some((_, tip)) = known {
        error.remove(ContextKind::SuggestedSubcommand);
        tips.push(StyledStr::from(*tip));
    }
    tips.push(StyledStr::from(format!("the verbs are {}", VERBS.join(", "))));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}
