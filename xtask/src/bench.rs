//! `cargo xtask bench`: builds the workloads with optimisations and runs them, alone or against those of another commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Failure, cargo, output, root, run as run_command};

/// Runs `tenure-bench` with these words, where the caller stands: files are named from there.
///
/// With `--against COMMIT` it alternates with the `tenure-bench` of that commit.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let Some((commit, rest)) = split_against(args)? else {
        return run_command(command(args)?);
    };
    let old = build_of(commit)?;
    let mut command = command(&["against"])?;
    command.arg(old).args(rest);
    run_command(command)
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

/// The commit after `--against`, and the other arguments.
fn split_against<'a>(args: &[&'a str]) -> Result<Option<(&'a str, Vec<&'a str>)>, Failure> {
    let Some(at) = args.iter().position(|arg| *arg == "--against") else {
        return Ok(None);
    };
    let commit = args.get(at + 1).filter(|commit| !commit.starts_with('-'));
    let commit = commit.ok_or_else(|| Failure::new("`--against` needs a commit"))?;
    Ok(Some((commit, [&args[..at], &args[at + 2..]].concat())))
}

/// Builds `tenure-bench` of a commit in a checkout of its own, and returns the program.
///
/// Checkout and build results stay for the next time. Between two commits git touches only the files that differ, so cargo
/// rebuilds what depends on them.
fn build_of(commit: &str) -> Result<PathBuf, Failure> {
    let scratch = root().join("target").join("against");
    let (tree, target) = (scratch.join("tree"), scratch.join("target"));
    let revision = format!("{commit}^{{commit}}");
    let hash = output(git(
        &root(),
        &["rev-parse", "--verify", "--quiet", "--end-of-options", &revision],
    ))
    .map_err(|_| Failure::new(format!("git knows no commit {commit:?}")))?;
    if !tree.join(".git").exists() {
        let mut clone = git(&root(), &["clone", "--quiet", "--shared", "--no-checkout", "."]);
        clone.arg(&tree);
        run_command(clone)?;
    }
    run_command(git(
        &tree,
        &["checkout", "--quiet", "--force", "--detach", hash.trim()],
    ))?;
    let mut build = cargo();
    build.current_dir(&tree).arg("build").args([
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "tenure-bench",
    ]);
    build.arg("--target-dir").arg(&target);
    run_command(build)?;
    Ok(target.join("release").join("tenure-bench"))
}

fn git(folder: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).args(args);
    git
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

    #[test]
    fn the_commit_is_taken_out_of_the_arguments() {
        assert_eq!(split_against(&["quick"]).unwrap(), None);
        let split = split_against(&["--rounds", "3", "--against", "HEAD~1", "--store", "redis"]).unwrap();
        assert_eq!(split, Some(("HEAD~1", vec!["--rounds", "3", "--store", "redis"])));
        assert!(split_against(&["--against"]).is_err());
        assert!(split_against(&["--against", "--rounds"]).is_err());
    }

    #[test]
    fn a_commit_that_git_does_not_know_is_named() {
        let failure = build_of("no-such-commit").unwrap_err();
        assert_eq!(failure.to_string(), "git knows no commit \"no-such-commit\"");
    }
}
