//! What became of each mutant, as a table for people.
//! Not here: how it was found out.

use std::fmt;
use std::time::Duration;

use super::mutant::Mutant;

/// What became of a mutant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// These tests failed.
    Caught(Vec<String>),
    /// No test failed, but they did not end within so many seconds.
    Hung(u64),
    /// It survived, and its table says why it may.
    Excused(&'static str),
    /// It survived.
    Survived,
    /// It was caught although its table says why it survives.
    InexcusablyCaught(Vec<String>),
    /// It proves nothing: the compiler refused it, and said this.
    DoesNotCompile(String),
}

impl Fate {
    /// What it is counted as.
    fn sort(&self) -> &'static str {
        match self {
            Fate::Caught(_) => "caught",
            Fate::Hung(_) => "by the limit alone",
            Fate::Excused(_) => "survive with a reason",
            Fate::Survived => "survive",
            Fate::InexcusablyCaught(_) | Fate::DoesNotCompile(_) => "wrong in themselves",
        }
    }

    /// Whether the mutant is as it should be.
    pub(crate) fn is_fine(&self) -> bool {
        matches!(self, Fate::Caught(_) | Fate::Hung(_) | Fate::Excused(_))
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Caught(by) => write!(f, "caught by {}", few(by)),
            Fate::Hung(limit) => write!(f, "caught by the limit alone: no end within {limit} s"),
            Fate::Excused(why) => write!(f, "survives, because {why}"),
            Fate::Survived => f.write_str("SURVIVES"),
            Fate::InexcusablyCaught(by) => {
                write!(
                    f,
                    "CAUGHT by {}, although its table says why it survives",
                    few(by)
                )
            }
            Fate::DoesNotCompile(said) => write!(f, "DOES NOT COMPILE\n{said}"),
        }
    }
}

/// The first test, and how many more there are.
fn few(tests: &[String]) -> String {
    match tests {
        [] => "a test binary that failed without naming a test".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// One line of the table.
pub(crate) fn line(mutant: &Mutant, fate: &Fate, took: Duration) -> String {
    format!("{:<46} {:>5.1} s  {fate}", mutant.name, took.as_secs_f64())
}

/// What a mutant is, for `--list`.
pub(crate) fn entry(mutant: &Mutant) -> String {
    let mut text = format!("{}\n    guards: {}", mutant.name, mutant.promise);
    for edit in mutant.edits {
        text += &format!("\n    in: {}", edit.file);
    }
    let tests = mutant.tests;
    text += &format!(
        "\n    tests: cargo test -p {} {} -- {}",
        tests.package,
        tests.target.args().join(" "),
        tests.names.join(" ")
    );
    if let Some(why) = mutant.survives {
        text += &format!("\n    survives, because {why}");
    }
    text
}

/// The last line.
pub(crate) fn sum(fates: &[Fate], took: Duration) -> String {
    let mut text = format!("mutants: {} tried", fates.len());
    for words in [
        "caught",
        "by the limit alone",
        "survive with a reason",
        "survive",
        "wrong in themselves",
    ] {
        let count = fates.iter().filter(|fate| fate.sort() == words).count();
        if count > 0 {
            text += &format!(", {count} {words}");
        }
    }
    text + &format!("; {:.0} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mutant_that_was_noticed_or_excused_is_fine() {
        let caught = || vec!["a".to_owned(), "b".to_owned()];
        for fate in [
            Fate::Caught(caught()),
            Fate::Hung(5),
            Fate::Excused("it is equal"),
        ] {
            assert!(fate.is_fine(), "{fate}");
        }
        for fate in [
            Fate::Survived,
            Fate::InexcusablyCaught(caught()),
            Fate::DoesNotCompile("error".to_owned()),
        ] {
            assert!(!fate.is_fine(), "{fate}");
        }
        assert_eq!(Fate::Caught(caught()).to_string(), "caught by a and 1 more");
    }

    #[test]
    fn the_sum_names_only_what_there_is() {
        let fates = [Fate::Caught(Vec::new()), Fate::Survived, Fate::Hung(5)];
        assert_eq!(
            sum(&fates, Duration::from_secs(3)),
            "mutants: 3 tried, 1 caught, 1 by the limit alone, 1 survive; 3 s"
        );
    }
}
