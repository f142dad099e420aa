//! `tenure completions SHELL`: a script generated from the parser's own definition.

use clap::{Arg, Command, CommandFactory};
use clap_complete::{Shell, generate};

use crate::args::Cli;

/// Returns the completion script for a shell.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = Cli::command();
    generate(shell, &mut command, "tenure", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Fish => script + &fish_values(&command),
        Shell::Zsh => options_after_arguments(&script),
        _ => script,
    }
}

/// Lets zsh complete options after a key. The generated script completes no options after the first of several keys.
fn options_after_arguments(script: &str) -> String {
    script.replace("\n'*::", "\n'*:")
}

/// Returns lines that let fish complete the values of a verb's positional arguments. The generated script completes
/// only the values of options.
fn fish_values(command: &Command) -> String {
    let lines = command.get_subcommands().flat_map(|verb| {
        let values = verb.get_positionals().flat_map(Arg::get_possible_values);
        let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        (!values.is_empty()).then(|| {
            let (verb, values) = (verb.get_name(), values.join(" "));
            format!("complete -c tenure -n \"__fish_tenure_using_subcommand {verb}\" -f -a \"{values}\"\n")
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shells_script_knows_the_verbs_and_options() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for word in ["tenure", "evict", "busy-exit"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
