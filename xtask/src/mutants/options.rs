//! The command line of `cargo xtask mutants`.
//! Not here: what is done with it.

use std::num::NonZeroUsize;

use super::mutant::Mutant;
use super::table;
use crate::process::Failure;

const USAGE: &str = "\
cargo xtask mutants [NAME…] [OPTIONS]

  NAME       a mutant, or the beginning of several names (default: all)
  --list     say which there are, what they guard and how, and try none
  --jobs N   try so many at once, each in a copy of its own (default: 1)
  --keep     leave the last mutant in its copy, and say where that is";

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// In the order of their tests, so that neighbours share what is built.
    pub(crate) mutants: Vec<&'static Mutant>,
    /// Only say which there are.
    pub(crate) list: bool,
    /// How many are tried at once, each in a copy of its own.
    pub(crate) jobs: NonZeroUsize,
    /// Leave the last mutant in place, to be looked at.
    pub(crate) keep: bool,
}

impl Options {
    pub(crate) fn read(args: &[&str]) -> Result<Self, Failure> {
        let (mut names, mut list, mut keep, mut jobs) = (Vec::new(), false, false, NonZeroUsize::MIN);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "--list" => list = true,
                "--keep" => keep = true,
                "--jobs" => {
                    let number = args.next().and_then(|number| number.parse().ok());
                    jobs = number.ok_or_else(|| usage("--jobs takes a number from 1 on"))?;
                }
                option if option.starts_with('-') => return Err(usage(&format!("unknown option {option}"))),
                name => names.push(name),
            }
        }
        let mut mutants = choose(&names)?;
        mutants.sort_by_key(|mutant| (mutant.tests.package, mutant.tests.target));
        Ok(Options {
            mutants,
            list,
            jobs,
            keep,
        })
    }
}

/// Those of that name or whose name begins so; all, if none is named.
fn choose(names: &[&str]) -> Result<Vec<&'static Mutant>, Failure> {
    for name in names {
        if !table::all().any(|mutant| mutant.name.starts_with(name)) {
            return Err(usage(&format!("no mutant is called {name}: see --list")));
        }
    }
    let wanted =
        |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| mutant.name.starts_with(name));
    Ok(table::all().filter(wanted).collect())
}

fn usage(what: &str) -> Failure {
    Failure::new(what.to_owned()).followed_by(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_of_a_name_chooses_all_that_begin_so() {
        let all = Options::read(&[]).unwrap();
        assert_eq!(all.mutants.len(), table::all().count());
        let some = Options::read(&["memory-", "--keep", "--jobs", "2"]).unwrap();
        assert!(some.keep && some.jobs.get() == 2 && !some.mutants.is_empty());
        assert!(
            some.mutants
                .iter()
                .all(|mutant| mutant.name.starts_with("memory-"))
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for args in [
            &["--jobs"][..],
            &["--jobs", "0"],
            &["--fast"],
            &["no-such-mutant"],
        ] {
            assert!(Options::read(args).is_err(), "{args:?}");
        }
    }
}
