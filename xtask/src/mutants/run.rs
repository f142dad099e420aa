//! The order of a run: every patch fits, the tests are green without a bug, and red with each.

use std::collections::BTreeSet;
use std::time::Instant;

use super::patch::{Mutant, check, read_all};
use super::scratch::{Outcome, Scratch};
use crate::process::Failure;

const USAGE: &str = "\
cargo xtask mutants [NAME…] [--list | --check]

  NAME      the beginning of one or more names: redis/, memory/token (default: all)
  --list    print the names, the bugs and their tests
  --check   only check that the patches apply";

/// Tries the mutants whose names begin with one of the arguments.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    let mut mutants = read_all()?;
    mutants.retain(|mutant| names.is_empty() || names.iter().any(|name| mutant.name.starts_with(name)));
    match options[..] {
        _ if mutants.is_empty() => Err(Failure::new("no mutant has this name").followed_by(USAGE)),
        [] => try_all(&mutants),
        ["--check"] => check(&mutants),
        ["--list"] => {
            for Mutant { name, bug, test, .. } in &mutants {
                println!("{name}: {bug} ({})", test.join(" "));
            }
            Ok(())
        }
        _ => Err(Failure::new("unknown options").followed_by(USAGE)),
    }
}

fn try_all(mutants: &[Mutant]) -> Result<(), Failure> {
    check(mutants)?;
    let began = Instant::now();
    let scratch = Scratch::copy()?;
    for test in mutants.iter().map(|mutant| &mutant.test).collect::<BTreeSet<_>>() {
        match scratch.test(test)? {
            Outcome::Passed(1..) => {}
            other => return Err(Failure::new(format!("without a mutant, {test:?}: {other:?}"))),
        }
    }
    println!("green without a mutant: {:.0} s", began.elapsed().as_secs_f64());

    let mut bad = Vec::new();
    for mutant in mutants {
        let began = Instant::now();
        mutant.apply(&scratch.tree, &[])?;
        let outcome = scratch.test(&mutant.test)?;
        mutant.apply(&scratch.tree, &["--reverse"])?;
        let seconds = began.elapsed().as_secs_f64();
        println!("{:<40} {seconds:>5.1} s  {outcome:?}", mutant.name);
        if !matches!(outcome, Outcome::Failed | Outcome::TimedOut) {
            bad.push(&*mutant.name);
        }
    }
    let (count, seconds) = (mutants.len(), began.elapsed().as_secs_f64());
    println!("{} of {count} caught: {seconds:.0} s", count - bad.len());
    if bad.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "not caught, or not compiled: {}",
        bad.join(" ")
    )))
}
