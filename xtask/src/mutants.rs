//! `cargo xtask mutants`: plants known bugs one at a time, and fails if a bug makes no test fail.
//!
//! A run checks that every patch applies, that the tests pass without a bug, and that each bug makes its test fail.

mod patch;
mod scratch;

use std::collections::BTreeSet;
use std::time::Instant;

use crate::process::Failure;
use patch::{Mutant, check, read_all};
use scratch::{Outcome, Scratch};

const USAGE: &str = "\
cargo xtask mutants [NAME…] [--list | --check]

  NAME      the beginning of one or more names: redis/, memory/token (default: all)
  --list    print the names, the bugs and their tests
  --check   only check that the patches apply";

/// Plants the bugs whose names begin with one of the arguments, by default all.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    let mut mutants = read_all()?;
    mutants.retain(|mutant| names.is_empty() || names.iter().any(|name| mutant.name.starts_with(name)));
    match options[..] {
        _ if mutants.is_empty() => Err(format!("no mutant has this name\n\n{USAGE}").into()),
        [] => try_all(&mutants),
        ["--check"] => check(&mutants),
        ["--list"] => {
            for Mutant { name, bug, test, .. } in &mutants {
                println!("{name}: {bug} ({})", test.join(" "));
            }
            Ok(())
        }
        _ => Err(format!("unknown options\n\n{USAGE}").into()),
    }
}

fn try_all(mutants: &[Mutant]) -> Result<(), Failure> {
    check(mutants)?;
    let began = Instant::now();
    let scratch = Scratch::copy()?;
    for test in mutants.iter().map(|mutant| &mutant.test).collect::<BTreeSet<_>>() {
        match scratch.test(test)? {
            Outcome::Passed(1..) => {}
            other => return Err(format!("without a mutant, {test:?}: {other:?}").into()),
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
    match bad.is_empty() {
        true => Ok(()),
        false => Err(format!("not caught, or not compiled: {}", bad.join(" ")).into()),
    }
}
