//! Parses arguments into a verb. Usage errors mask passwords and have the exit code of the verb.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser};

use super::tips::{fix_suggestion, suggest_verb};
use super::{Cli, Global, Run, Verb};
use crate::messages::without_passwords;

/// Exit code of a usage error of `run` and `elect`: the code 2 could be the command's own.
const RUN_USAGE: u8 = 125;
/// Exit code of a usage error, except of `run` and `elect`.
const USAGE: u8 = 2;

/// The text of a usage error, of help or of the version, printed instead of running a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUsage {
    /// Exit code: 0 if the user asked for help or the version.
    pub exit_code: u8,
    /// Text to print: to stdout if the exit code is 0, otherwise to stderr.
    pub text: String,
}

/// Parses the arguments. The first one is the program's name.
///
/// # Errors
/// Help, the version, or a usage error. Masks passwords, because the text may quote a URL among the arguments.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, BadUsage> {
    let args: Vec<OsString> = args.into_iter().collect();
    let verb = || verb_of(&args);
    let parsed = parse_run(&args).map_or_else(|| Cli::try_parse_from(&args), Ok);
    let checked = parsed.and_then(|cli| match contradiction(&cli.verb) {
        Some(words) => Err(usage_error(verb().as_deref(), &words)),
        None => Ok(cli),
    });
    checked.map_err(|mut error| {
        let verb = verb();
        fix_suggestion(&mut error, verb.as_deref(), &args);
        suggest_verb(&mut error);
        let mut text = without_passwords(&error.render().to_string());
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if !error.use_stderr() {
            return BadUsage { exit_code: 0, text };
        }
        if let Some(verb @ ("run" | "elect")) = verb.as_deref()
            && !args.iter().any(|arg| arg == "--")
        {
            text.push_str(&format!(
                "\nThe command comes after `--`, as in: tenure {verb} k -- echo hi\n"
            ));
        }
        BadUsage {
            exit_code: match verb.as_deref() {
                Some("run" | "elect") => RUN_USAGE,
                _ => USAGE,
            },
            text,
        }
    })
}

/// Parses `tenure run …` without building the parsers of the other verbs, so that a short `tenure run` ends sooner. Returns
/// `None` for another verb, and for arguments that the whole parser must refuse or explain.
fn parse_run(args: &[OsString]) -> Option<Cli> {
    if args.get(1)? != "run" {
        return None;
    }
    let run = Run::augment_args(Command::new("run"));
    let tenure = Global::augment_args(Command::new("tenure")).subcommand(run);
    let matches = tenure.try_get_matches_from(args).ok()?;
    let (_, run) = matches.subcommand()?;
    Some(Cli {
        global: Global::from_arg_matches(&matches).ok()?,
        verb: Verb::Run(Run::from_arg_matches(run).ok()?),
    })
}

fn contradiction(verb: &Verb) -> Option<String> {
    match verb {
        Verb::Run(run) => run.contradiction(),
        Verb::Hold(hold) => hold.lock.contradiction(),
        Verb::Elect(elect) => elect.contradiction(),
        _ => None,
    }
}

/// Creates an error like the parser's own, with the usage of the verb.
fn usage_error(verb: Option<&str>, words: &str) -> clap::Error {
    let mut command = Cli::command();
    command.build();
    match verb.and_then(|verb| command.find_subcommand_mut(verb)) {
        Some(verb) => verb.error(ErrorKind::ValueValidation, words),
        None => command.error(ErrorKind::ValueValidation, words),
    }
}

/// Guesses the verb of refused arguments. The verb decides the exit code.
fn verb_of(args: &[OsString]) -> Option<String> {
    let command = Cli::command();
    let is_verb = |word: &OsStr| command.get_subcommands().any(|verb| word == verb.get_name());
    let words: Vec<&OsStr> = args
        .iter()
        .skip(1)
        .map(OsString::as_os_str)
        .take_while(|word| *word != "--")
        .collect();
    let mut swallowed = None;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        let value = words.get(at + 1).copied();
        if text == "--url" || text == "--url-file" {
            // In `--url run k` the URL is missing: `run` is the verb, unless a later word is a verb.
            swallowed = swallowed.or(value);
            at += 2;
        } else if text.starts_with('-') {
            // An unknown option may have a value: skip the next word unless it is a verb or begins with `-`.
            let known =
                ["-q", "-v", "--json", "--quiet", "--verbose"].contains(&&*text) || text.contains('=');
            at += if known
                || value.is_none_or(|value| is_verb(value) || value.to_string_lossy().starts_with('-'))
            {
                1
            } else {
                2
            };
        } else if is_verb(word) {
            return Some(text.into_owned());
        } else {
            break;
        }
    }
    let swallowed = swallowed.filter(|word| is_verb(word));
    swallowed.map(|word| word.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::super::verbs::VERBS;
    use super::super::{Kind, OnLost, Run, Stop, Wait, grace};
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        let words = std::iter::once("tenure").chain(line.split_whitespace());
        words.map(OsString::from).collect()
    }

    fn read(line: &str) -> Result<Cli, BadUsage> {
        parse(words(line))
    }

    /// Parses a line of `run`, and checks that the whole parser understands it as the short one does.
    fn run(line: &str) -> Run {
        let args = words(line);
        assert_eq!(parse_run(&args), Cli::try_parse_from(&args).ok(), "{line}");
        match read(line).map(|cli| cli.verb) {
            Ok(Verb::Run(run)) => run,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str, code: u8, words: &[&str]) {
        let error = read(line).expect_err(line);
        assert_eq!(error.exit_code, code, "{line}: {}", error.text);
        for word in words {
            assert!(
                error.text.contains(word),
                "{line}: {word:?} is missing in\n{}",
                error.text
            );
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
        let command = Cli::command();
        let verbs: Vec<&str> = command.get_subcommands().map(|verb| verb.get_name()).collect();
        assert_eq!(verbs, VERBS);
    }

    #[test]
    fn an_unknown_verb_is_answered_with_what_to_write() {
        for (line, words) in [
            ("lock k", "tenure run KEY -- CMD"),
            ("exec k -- a", "tenure run KEY -- CMD"),
            ("unlock k", "tenure evict"),
            ("status", "tenure ls"),
            ("version", "tenure --version"),
            ("shwo k", "'show'"),
            ("frobnicate", "the verbs are run, hold, ls"),
        ] {
            refused(line, 2, &[words, "the verbs are run"]);
        }
        let help = read("help run").expect_err("help ends the program");
        assert_eq!(help.exit_code, 0);
        assert!(help.text.contains("What is promised:"), "{}", help.text);
    }

    #[test]
    fn the_defaults_are_as_documented() {
        let run = run("run k -- true");
        assert_eq!(run.lock.keys(), ["k"]);
        assert_eq!(run.lock.kind(), Kind::Mutex { fair: false });
        assert_eq!(run.lock.wait(), Wait::Forever);
        assert_eq!(run.lock.lease, Duration::from_secs(30));
        assert_eq!(run.lock.at_least, Duration::ZERO);
        assert_eq!((run.lock.max_hold, run.lock.label.clone()), (None, None));
        assert_eq!(
            (run.busy_exit, run.on_lost, grace(run.grace, run.lock.lease)),
            (124, OnLost::Term, Duration::from_secs(5))
        );
        assert_eq!(run.command, ["true"]);
    }

    #[test]
    fn short_and_long_options_are_equal() {
        assert_eq!(
            run("run k -n -E 0 -s -- true"),
            run("run --no-wait --busy-exit 0 --shared k -- true")
        );
        assert_eq!(
            run("run k -x -w 5s -- true"),
            run("run k --exclusive --wait=5s -- true")
        );
        assert_eq!(run("run k -x -- a").lock.kind(), Kind::Write);
        assert_eq!(run("run k -s -- a").lock.kind(), Kind::Read);
        assert_eq!(run("run k --fair -- a").lock.kind(), Kind::Mutex { fair: true });
        let (take, of) = (NonZeroU32::MIN, NonZeroU32::MIN.saturating_add(2));
        assert_eq!(
            run("run k --permits 1 --of 3 -- a").lock.kind(),
            Kind::Permits { take, of }
        );
        assert_eq!(run("run k -n -- a").lock.wait(), Wait::Not);
        assert_eq!(
            run("run k -w 2m -- a").lock.wait(),
            Wait::AtMost(Duration::from_secs(120))
        );
    }

    #[test]
    fn everything_after_the_dashes_is_the_commands() {
        assert_eq!(
            run("run k -- sh -c x -- --lease -n").command,
            ["sh", "-c", "x", "--", "--lease", "-n"]
        );
    }

    #[test]
    fn keys_are_taken_verbatim() {
        assert_eq!(
            run("run --key=-n a --key=--lease -- true").lock.keys(),
            ["a", "-n", "--lease"]
        );
        let empty =
            parse(["tenure", "run", "", "--", "true"].map(OsString::from)).expect("the library judges keys");
        assert!(matches!(empty.verb, Verb::Run(run) if run.lock.keys() == [""]));
    }

    #[test]
    fn global_options_stand_before_or_after_the_verb() {
        let before = read("--url sqlite: --json -q ls").expect("valid");
        assert_eq!(before, read("ls --url sqlite: --json -q").expect("valid"));
        assert_eq!(before.global.url.as_deref(), Some("sqlite:"));
    }

    #[test]
    fn the_parser_of_run_alone_leaves_the_rest_to_the_whole_parser() {
        for line in [
            "ls",
            "",
            "--json run k -- true",
            "run --help",
            "run k --version",
            "run --frobnicate -- true",
        ] {
            assert_eq!(parse_run(&words(line)), None, "{line}");
        }
        let run = run("run --json k -q --url sqlite:x -- true");
        assert_eq!(run.lock.keys(), ["k"]);
    }

    #[test]
    fn a_usage_error_of_run_exits_125() {
        refused("run k -- ", 125, &["no command"]);
        refused("run -- true", 125, &["no key"]);
        refused("run k k -- true", 125, &["\"k\"", "twice"]);
        refused("run k --key=k -- true", 125, &["twice"]);
        refused("run k --wait 5 -- true", 125, &["--wait", "`5s`"]);
        refused("run k --lease 0s -- true", 125, &["`1s`"]);
        refused("run k --lease=-1s -- true", 125, &["negative"]);
        refused("run k --max-hold 0s -- true", 125, &["no limit"]);
        refused("run k --max-hold 2s --at-least 3s -- true", 125, &["--at-least"]);
        refused("run k --permits 3 --of 2 -- true", 125, &["at most 2"]);
        refused("run k --permits 0 --of 2 -- true", 125, &["--permits"]);
        refused("run k --permits 1 -- true", 125, &["--of"]);
        refused("run k --of 1 -- true", 125, &["--permits"]);
        refused("run k --permits 1 --of 2 -s -- true", 125, &["cannot be used"]);
        refused("run k --fair -x -- true", 125, &["cannot be used"]);
        refused("run k -s -x -- true", 125, &["cannot be used"]);
        refused("run k -n -w 1s -- true", 125, &["cannot be used"]);
        refused("run k -E 256 -- true", 125, &["256"]);
        refused("run k --lease 3s --grace 2s -- true", 125, &["third", "1s"]);
        // The suggested third of the lease is rounded down, so that `--grace` accepts it.
        refused("run k --lease 2s --grace 1s -- true", 125, &["make it 666ms"]);
        refused("run k --on-lost wait -- true", 125, &["term", "kill", "ignore"]);
        refused("run k --frobnicate -- true", 125, &["--frobnicate"]);
        refused("--frobnicate run k -- true", 125, &["--frobnicate"]);
        refused("--frobnicate 5 run k -- true", 125, &["--frobnicate"]);
        refused("--frobnicate=5 -q run k -- true", 125, &["--frobnicate"]);
        refused("--url a --url-file b run k -- true", 125, &["--url-file"]);
        refused("-q -v run k -- true", 125, &["cannot be used"]);
        refused("--url run k -- true", 125, &["k"]);
    }

    #[test]
    fn every_duration_option_refuses_negative_values() {
        for option in ["-w", "--lease", "--max-hold", "--at-least", "--grace"] {
            refused(
                &format!("run k {option} -1s -- true"),
                125,
                &["cannot be negative"],
            );
        }
        refused("elect k --grace -1s -- true", 125, &["cannot be negative"]);
        refused("elect k --max-hold -1s -- true", 125, &["cannot be negative"]);
        // `-n` is taken as the value of `--wait`. The error says that it is no duration, not that it is negative.
        refused("run k --wait -n -- true", 125, &["--wait", "whole numbers"]);
        refused("run k --wait -- true", 125, &["--wait", "whole numbers"]);
    }

    #[test]
    fn an_unknown_option_suggests_the_key_option() {
        refused("run -foo -- true", 125, &["'-f'", "'--key=-foo'"]);
        refused("run --frobnicate k -- true", 125, &["'--key=--frobnicate'"]);
        refused("-q hold -foo", 2, &["'--key=-foo'"]);
        refused("run k --lable x -- true", 125, &["'--label'"]);
        let text = read("elect -foo -- true")
            .expect_err("there is no such option")
            .text;
        assert!(!text.contains("--key") && !text.contains("-- -f"), "{text}");
        // `show` takes no command, so the parser's own suggestion, `-- -f`, is right.
        refused("show -foo", 2, &["-- -f"]);
    }

    #[test]
    fn a_usage_error_of_other_verbs_exits_2() {
        refused("", 2, &["Usage"]);
        refused("frobnicate", 2, &["frobnicate"]);
        refused("frobnicate run", 2, &["frobnicate"]);
        refused("--frobnicate hold run", 2, &["--frobnicate"]);
        refused("hold", 2, &["no key"]);
        refused("hold k k", 2, &["twice"]);
        refused("hold k --no-stdin --lease=-1s", 2, &["negative"]);
        refused("hold k -E 3", 2, &["-E"]);
        refused("show", 2, &["KEY"]);
        refused("evict k", 2, &["--claim", "--all"]);
        refused("evict k --all --claim x", 2, &["cannot be used"]);
        refused("ls --limit 0", 2, &["--limit"]);
        refused("completions tcsh", 2, &["bash"]);
        refused("man frobnicate", 2, &["evict"]);
        refused("schema --frobnicate", 2, &["--frobnicate"]);
        refused("doctor k", 2, &["k"]);
        refused("watch a b", 2, &["b"]);
    }

    #[test]
    fn an_eviction_names_one_claim_or_all() {
        let claim = |line: &str| match read(line).map(|cli| cli.verb) {
            Ok(Verb::Evict(evict)) => (evict.claim, evict.all),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(claim("evict k --claim x"), (Some("x".to_owned()), false));
        assert_eq!(claim("evict k --all"), (None, true));
        for empty in [&["--claim", ""][..], &["--claim="], &["--claim", " "]] {
            let words = [&["tenure", "evict", "k"], empty].concat();
            let error = parse(words.into_iter().map(OsString::from)).expect_err("it names no holder");
            assert_eq!(error.exit_code, 2, "{}", error.text);
            for word in ["--claim", "names no holder", "`tenure show`", "--all"] {
                assert!(error.text.contains(word), "{}", error.text);
            }
        }
    }

    #[test]
    fn without_dashes_the_message_shows_where_they_belong() {
        for line in ["run k", "run k echo hi", "run k sh -c true", "run"] {
            refused(line, 125, &["tenure run k -- echo hi"]);
        }
    }

    #[test]
    fn help_goes_to_stdout_and_states_what_is_not_promised() {
        for line in ["--help", "-h", "run --help", "hold --help", "ls -h", "--version"] {
            let help = read(line).expect_err("help is no verb");
            assert_eq!(help.exit_code, 0, "{line}");
        }
        for line in ["--help", "run --help"] {
            let text = read(line).expect_err("help is no verb").text;
            for word in [
                "  127  the command was not found",
                "fencing token",
                "Not promised",
            ] {
                assert!(text.contains(word), "{line}: {word:?} is missing in\n{text}");
            }
        }
    }

    #[test]
    fn elect_takes_a_name_and_a_command() {
        let elect = |line: &str| match read(line).map(|cli| cli.verb) {
            Ok(Verb::Elect(elect)) => elect,
            other => panic!("{line}: {other:?}"),
        };
        let plain = elect("elect chair -- sh -c true");
        assert_eq!(
            (plain.name.as_str(), plain.lease),
            ("chair", Duration::from_secs(30))
        );
        assert_eq!(
            (grace(plain.grace, plain.lease), plain.on_lost),
            (Duration::from_secs(5), Stop::Term)
        );
        assert_eq!(plain.command, ["sh", "-c", "true"]);
        let short = elect("elect chair --lease 3s --grace 1s --max-hold 1m --on-lost kill -- a");
        assert_eq!(
            (grace(short.grace, short.lease), short.on_lost),
            (Duration::from_secs(1), Stop::Kill)
        );
        assert_eq!(
            (plain.max_hold, short.max_hold),
            (None, Some(Duration::from_secs(60)))
        );
        refused("elect chair", 125, &["no command", "tenure elect k -- echo hi"]);
        refused("elect chair -- ", 125, &["no command"]);
        refused("elect -- true", 125, &["NAME"]);
        refused("elect chair --lease 3s --grace 2s -- true", 125, &["third"]);
        refused("elect chair --on-lost ignore -- true", 125, &["term", "kill"]);
        refused("elect chair --max-hold 0s -- true", 125, &["no limit"]);
        refused("--frobnicate elect chair -- true", 125, &["--frobnicate"]);
    }
}
