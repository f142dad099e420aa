//! The order of things: every text is found, the tests are green without a mutant, and red with each of them.
//! Not here: copies, test runs and tables, which have files of their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::mutant::{Mutant, Target};
use super::options::Options;
use super::report::{self, Fate};
use super::trial::{self, Ended};
use super::work_copy::WorkCopy;
use crate::process::Failure;

/// How long the tests may take that are run without a mutant.
const BASELINE_LIMIT: Duration = Duration::from_secs(600);

/// Tries the mutants that were asked for; fails if one is not as it should be.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let options = Options::read(args)?;
    if options.list {
        options
            .mutants
            .iter()
            .for_each(|mutant| println!("{}", report::entry(mutant)));
        println!("mutants: {}", options.mutants.len());
        return Ok(());
    }
    let began = Instant::now();
    let first = WorkCopy::of_work_tree(1)?;
    find_all(&options.mutants, &first.tree)?;
    baseline(&first, &options.mutants)?;

    let fates = Mutex::new(Vec::new());
    let queue = Mutex::new(options.mutants.iter().copied().collect());
    let numbers = 2..=options.jobs.get();
    let others: Vec<WorkCopy> = numbers
        .map(|number| first.another(number))
        .collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let workers = [&first].into_iter().chain(&others);
        let workers: Vec<_> = workers
            .map(|copy| scope.spawn(|| work(copy, &queue, &fates, options.keep)))
            .collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        ends.map(|end| end.unwrap_or_else(|_| Err(Failure::new("mutants: a worker panicked"))))
            .collect::<Result<Vec<()>, Failure>>()
    })?;

    let fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{}", report::sum(&fates, began.elapsed()));
    if options.keep {
        println!("mutants: left in {}", first.tree.display());
    }
    match fates.iter().filter(|fate| !fate.is_fine()).count() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} mutants are not as they should be"))),
    }
}

/// Every text that is to be replaced stands where it should; all that do not are named at once.
fn find_all(mutants: &[&Mutant], tree: &Path) -> Result<(), Failure> {
    let lost: Vec<String> = mutants
        .iter()
        .filter_map(|mutant| mutant.mutate(tree).err())
        .map(|failure| failure.to_string())
        .collect();
    if lost.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(lost.join("\n\n")))
    }
}

/// Without a mutant every named test is there and green: otherwise it proves nothing that it is red with one.
fn baseline(copy: &WorkCopy, mutants: &[&Mutant]) -> Result<(), Failure> {
    let mut wanted: BTreeMap<(&str, Target), BTreeSet<&str>> = BTreeMap::new();
    for Mutant { tests, .. } in mutants {
        wanted
            .entry((tests.package, tests.target))
            .or_default()
            .extend(tests.names);
    }
    for ((package, target), names) in wanted {
        let shown = format!("{package} {}", target.args().join(" "));
        if let Err(said) = trial::build(copy, package, target)? {
            return Err(Failure::new(format!(
                "{shown} does not compile without a mutant:\n{said}"
            )));
        }
        let names: Vec<&str> = names.into_iter().collect();
        let filter = match target {
            // All its tests, then.
            Target::TestByOneName(_) if names.len() > 1 => &[],
            _ => &*names,
        };
        let ran = trial::run(copy, package, target, filter, BASELINE_LIMIT)?;
        if ran.ended != Ended::Green {
            let what = format!(
                "{shown} is not green without a mutant ({:?}): {:?}",
                ran.ended, ran.failed
            );
            return Err(Failure::new(what));
        }
        let unknown = |name: &&&str| !ran.passed.iter().any(|test| test.contains(**name));
        if let Some(name) = names.iter().find(unknown) {
            return Err(Failure::new(format!("{shown} has no test `{name}`")));
        }
        println!("{shown}: {} tests green without a mutant", ran.passed.len());
    }
    println!();
    Ok(())
}

/// Tries mutants until none is left.
fn work(
    copy: &WorkCopy,
    queue: &Mutex<VecDeque<&Mutant>>,
    fates: &Mutex<Vec<Fate>>,
    keep: bool,
) -> Result<(), Failure> {
    let mut last = None;
    loop {
        let Some(mutant) = lock(queue).pop_front() else {
            return Ok(());
        };
        // The one before is taken back only here, so that the last can be kept.
        drop(last.take());
        let began = Instant::now();
        let planted = copy.plant(mutant.mutate(&copy.tree)?, keep && lock(queue).is_empty())?;
        let fate = try_one(copy, mutant)?;
        println!("{}", report::line(mutant, &fate, began.elapsed()));
        lock(fates).push(fate);
        last = Some(planted);
    }
}

/// Builds a mutant that is planted, and runs its tests.
fn try_one(copy: &WorkCopy, mutant: &Mutant) -> Result<Fate, Failure> {
    let tests = mutant.tests;
    if let Err(said) = trial::build(copy, tests.package, tests.target)? {
        return Ok(Fate::DoesNotCompile(said));
    }
    let limit = Duration::from_secs(mutant.limit_s);
    let ran = trial::run(copy, tests.package, tests.target, tests.names, limit)?;
    Ok(match (ran.ended, mutant.survives) {
        (Ended::Green, Some(why)) => Fate::Excused(why),
        (Ended::Green, None) => Fate::Survived,
        (_, Some(_)) => Fate::InexcusablyCaught(ran.failed),
        (Ended::AtItsLimit, None) if ran.failed.is_empty() => Fate::Hung(mutant.limit_s),
        (Ended::Red | Ended::AtItsLimit, None) => Fate::Caught(ran.failed),
    })
}

/// A worker that panicked has broken nothing that another would read.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
