//! `cargo xtask bench`: builds the workloads with optimisations and runs them.
//! Not here: what is measured (`tenure-bench`, whose `--help` lists the options).

use std::process::Command;

use crate::process::{Failure, cargo, root, run as run_command};

/// Runs `tenure-bench` with these words, where the caller stands: files are named from there.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    run_command(command(args)?)
}

fn command(args: &[&str]) -> Result<Command, Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::new(format!("the current folder cannot be found: {error}")))?;
    let mut command = cargo();
    command.current_dir(here);
    command.args(["run", "--quiet", "--release", "--package", "tenure-bench"]);
    command.arg("--manifest-path").arg(root().join("Cargo.toml"));
    command.arg("--").args(args);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workloads_are_built_with_optimisations_and_run_where_the_caller_stands() {
        let command = command(&["quick", "--json", "rows.json"]).unwrap();
        assert_eq!(
            command.get_current_dir(),
            Some(&*std::env::current_dir().unwrap())
        );
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert!(args.contains(&"--release"), "{args:?}");
        assert_eq!(args[args.len() - 4..], ["--", "quick", "--json", "rows.json"]);
    }
}
