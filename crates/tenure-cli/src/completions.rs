//! `tenure completions SHELL`: a script generated from the parser's own definition.
//! Installs nothing; where the script belongs is the shell's and the packager's.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::Cli;

/// The script.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "tenure", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shells_script_knows_the_verbs_and_options() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).expect("scripts are text");
            for word in ["tenure", "evict", "busy-exit"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
