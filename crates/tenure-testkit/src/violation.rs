//! What a history can be found guilty of, and how it reads.

use std::fmt;

use crate::history::Event;

/// What a history has shown about a lock, if nothing is wrong with it.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, check};
///
/// let history = "1000 1 invoked owner=1 mode=exclusive key=k\n1100 1 failed";
/// let events = history.lines().map(|line| line.parse::<Event>().unwrap());
/// let summary = check(events).unwrap();
/// // A test looks at it too: a history without grants is right about nothing.
/// assert_eq!((summary.attempts, summary.acquired), (1, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many attempts were begun.
    pub attempts: u64,
    /// How many were granted.
    pub acquired: u64,
    /// How often a holder asked and was told that it holds.
    pub samples: u64,
}

/// The rules of a history.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, Rule, check};
///
/// // The second holder came after the first, and its token is not greater.
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
    /// The history contradicts itself: its recording is at fault.
    History,
    /// Two that may not hold together were believed at the same time.
    V1,
    /// "It is held" was said of a lock whose belief had ended, or that another was believed to hold throughout.
    V2,
    /// A token was not greater than one of a conflicting grant that was complete before, or was given out twice.
    V3,
    /// The guarded resource accepted an older token after a newer one.
    V4,
    /// In a first-come, first-served queue a later attempt was granted before a conflicting earlier one.
    L3,
    /// Something was left behind in the store.
    L4,
}

/// One violation, with the events that show it.
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
    /// Which rule was broken.
    pub rule: Rule,
    /// How, in words.
    pub what: String,
    /// The events concerned.
    pub events: Vec<Event>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)?;
        for event in &self.events {
            write!(f, "\n    {event}")?;
        }
        Ok(())
    }
}
