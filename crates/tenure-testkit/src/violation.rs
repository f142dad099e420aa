//! Results of checking a history: rules, violations and a summary.

use std::fmt;

use crate::history::Event;

/// Counts of a history without violations.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, check};
///
/// let history = "1000 1 invoked owner=1 mode=exclusive key=k\n1100 1 failed";
/// let events = history.lines().map(|line| line.parse::<Event>().unwrap());
/// let summary = check(events).unwrap();
/// // Tests should also check the counts: a history without grants proves nothing.
/// assert_eq!((summary.attempts, summary.acquired), (1, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of granted attempts.
    pub acquired: u64,
    /// Number of times a guard said that it holds its key.
    pub samples: u64,
}

/// Rule that a history of locks must keep. Each variant's text says how a history breaks that rule.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, Rule, check};
///
/// // The second grant came after the first, but its token is not greater.
/// let history = "\
/// 1000 1 invoked owner=1 mode=exclusive key=k
/// 1100 1 acquired token=7 until=9000
/// 1200 1 release
/// 1300 1 released
/// 1400 2 invoked owner=2 mode=exclusive key=k
/// 1500 2 acquired token=7 until=9000";
/// let events = history.lines().map(|line| line.parse::<Event>().unwrap());
/// assert_eq!(check(events).unwrap_err()[0].rule, Rule::V3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The history contradicts itself, so it was recorded wrongly.
    History,
    /// Two attempts with conflicting modes held the key at the same time.
    V1,
    /// A guard said "held" after its deadline or its loss, or while a conflicting attempt of another owner held the
    /// key.
    V2,
    /// A token was not greater than that of a conflicting grant made before the attempt began, or two conflicting
    /// grants had the same token.
    V3,
    /// The guarded resource accepted an older token after a newer one.
    V4,
    /// An attempt overtook a conflicting one: it was granted while the other still waited, although the other had
    /// queued before it began.
    L3,
    /// The store showed more holders and waiters of a key than there were attempts that had neither failed nor been
    /// released.
    L4,
}

/// Violation of a rule, with the events that show it.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, Rule, check};
///
/// let history = "\
/// 1000 1 invoked owner=1 mode=exclusive key=k
/// 1100 1 acquired token=1 until=9000
/// 1200 2 invoked owner=2 mode=exclusive key=k
/// 1300 2 acquired token=2 until=9000";
/// let events = history.lines().map(|line| line.parse::<Event>().unwrap());
/// let violations = check(events).unwrap_err();
/// assert_eq!(violations[0].rule, Rule::V1);
/// println!("{}", violations[0]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Rule that was violated.
    pub rule: Rule,
    /// Description of the violation.
    pub description: String,
    /// Events that show the violation.
    pub events: Vec<Event>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.description)?;
        for event in &self.events {
            write!(f, "\n    {event}")?;
        }
        Ok(())
    }
}
