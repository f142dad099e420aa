//! The list of all mutants, and what their tables write them with.
//! Not here: the mutants themselves.

use super::{
    belief, changes, command, election, ending, faces, keeping, memory, passing, queueing, redis,
    redis_calls, redis_refusals, redis_remembered, sqlite, testkit, threads, waiting,
};
use crate::mutants::mutant::{Mutant, Target, Tests};

/// What most mutants have in common.
pub(super) const PLAIN: Mutant = Mutant {
    name: "",
    promise: "",
    edits: &[],
    tests: unit("", &[]),
    limit_s: 60,
    survives: None,
};

/// All mutants.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutant> {
    [
        belief::MUTANTS,
        passing::MUTANTS,
        waiting::MUTANTS,
        queueing::MUTANTS,
        ending::MUTANTS,
        keeping::MUTANTS,
        faces::MUTANTS,
        election::MUTANTS,
        changes::MUTANTS,
        threads::MUTANTS,
        memory::MUTANTS,
        sqlite::MUTANTS,
        redis::MUTANTS,
        redis_calls::MUTANTS,
        redis_refusals::MUTANTS,
        redis_remembered::MUTANTS,
        testkit::MUTANTS,
        command::MUTANTS,
    ]
    .into_iter()
    .flatten()
}

/// Unit tests of a package's library.
pub(super) const fn unit(package: &'static str, names: &'static [&'static str]) -> Tests {
    Tests {
        package,
        target: Target::Lib,
        names,
    }
}

/// Tests of one binary in a package's `tests`.
pub(super) const fn test(
    package: &'static str,
    binary: &'static str,
    names: &'static [&'static str],
) -> Tests {
    Tests {
        package,
        target: Target::Test(binary),
        names,
    }
}

/// Some of the engine's own tests.
pub(super) const fn engine(names: &'static [&'static str]) -> Tests {
    test("tenure", "engine", names)
}

/// Some of the tests of what others have shipped, and of what the engine's own tests overlook.
pub(super) const fn regressions(names: &'static [&'static str]) -> Tests {
    test("tenure", "regressions", names)
}

/// Some of the tests of elections.
pub(super) const fn election(names: &'static [&'static str]) -> Tests {
    test("tenure", "election", names)
}

/// Some of the tests of watching.
pub(super) const fn changes(names: &'static [&'static str]) -> Tests {
    test("tenure", "changes", names)
}

/// Some of the tests of the face without async.
pub(super) const fn threads(names: &'static [&'static str]) -> Tests {
    test("tenure", "blocking", names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::root;

    #[test]
    fn every_mutant_finds_its_text_where_it_looks_for_it() {
        let lost: Vec<String> = all()
            .filter_map(|mutant| mutant.mutate(&root()).err())
            .map(|failure| failure.to_string())
            .collect();
        assert!(lost.is_empty(), "{}", lost.join("\n\n"));
    }

    #[test]
    fn every_mutant_has_a_name_of_its_own_a_promise_and_tests() {
        let mut names: Vec<&str> = all().map(|mutant| mutant.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for mutant in all() {
            let named = mutant
                .name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
            assert!(named && !mutant.name.is_empty(), "{}", mutant.name);
            assert!(
                !mutant.promise.is_empty() && !mutant.promise.ends_with('.'),
                "{}",
                mutant.name
            );
            assert!(
                !mutant.edits.is_empty() && !mutant.tests.names.is_empty(),
                "{}",
                mutant.name
            );
        }
    }
}
