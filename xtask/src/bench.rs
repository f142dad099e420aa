//! `cargo xtask bench`: builds `tenure-bench` with optimisations and runs it, alone or against that of another commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Failure, cargo, output, root, run as run_command};

const BUILD: &str = "--quiet --release --package tenure-bench";

/// Runs `tenure-bench` in the caller's folder, so that file names in `args` are relative to it.
///
/// With `--against COMMIT` it alternates with the `tenure-bench` of that commit.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let mut command = cargo(&format!("run {BUILD}"));
    command.current_dir(std::env::current_dir()?);
    command
        .arg("--manifest-path")
        .arg(root().join("Cargo.toml"))
        .arg("--");
    match split_against(args)? {
        None => command.args(args),
        Some((commit, rest)) => command.arg("against").arg(build_of(commit)?).args(rest),
    };
    run_command(command)
}

fn split_against<'a>(args: &[&'a str]) -> Result<Option<(&'a str, Vec<&'a str>)>, Failure> {
    let Some(at) = args.iter().position(|arg| *arg == "--against") else {
        return Ok(None);
    };
    let commit = args.get(at + 1).filter(|commit| !commit.starts_with('-'));
    let commit = commit.ok_or("`--against` needs a commit")?;
    Ok(Some((commit, [&args[..at], &args[at + 2..]].concat())))
}

/// Builds `tenure-bench` of a commit in a separate checkout, and returns the program's path.
///
/// The checkout and its build results are kept: git changes only files that differ, so the next commit builds faster.
fn build_of(commit: &str) -> Result<PathBuf, Failure> {
    let scratch = root().join("target").join("against");
    let (tree, target) = (scratch.join("tree"), scratch.join("target"));
    let mut hash = git(&root(), "rev-parse --verify --quiet --end-of-options");
    hash.arg(format!("{commit}^{{commit}}"));
    let hash = output(hash).map_err(|_| format!("git knows no commit {commit:?}"))?;
    if !tree.join(".git").exists() {
        let mut clone = git(&root(), "clone --quiet --shared --no-checkout .");
        clone.arg(&tree);
        run_command(clone)?;
    }
    let mut checkout = git(&tree, "checkout --quiet --force --detach");
    checkout.arg(hash.trim());
    run_command(checkout)?;
    let mut build = cargo(&format!("build --locked {BUILD}"));
    build.current_dir(&tree).arg("--target-dir").arg(&target);
    run_command(build)?;
    Ok(target.join("release").join("tenure-bench"))
}

fn git(folder: &Path, words: &str) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder).args(words.split(' '));
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn against_splits_off_the_commit() {
        assert_eq!(split_against(&["quick"]).unwrap(), None);
        let split = split_against(&["--rounds", "3", "--against", "HEAD~1", "--store", "redis"]).unwrap();
        assert_eq!(split, Some(("HEAD~1", vec!["--rounds", "3", "--store", "redis"])));
        assert!(split_against(&["--against"]).is_err());
        assert!(split_against(&["--against", "--rounds"]).is_err());
    }

    #[test]
    fn an_unknown_commit_is_named_in_the_error() {
        let failure = build_of("no-such-commit").unwrap_err();
        assert_eq!(failure.to_string(), "git knows no commit \"no-such-commit\"");
    }
}
