//! The promises that a program can require of its store.

use std::fmt;

/// A promise that a program can require of its store at start-up.
///
/// # Examples
/// ```
/// use tenure_backend::{Guarantee, Profile};
///
/// /// The guarantees that a store does not give, as text. Programs check one with `Client::require` of `tenure`.
/// fn missing(profile: &Profile) -> Vec<String> {
///     let missing = Guarantee::ALL.iter().filter(|guarantee| !profile.offers(**guarantee));
///     missing.map(|guarantee| guarantee.to_string()).collect()
/// }
/// assert_eq!(Guarantee::BetweenMachines.to_string(), "locks exclude other machines");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Guarantee {
    /// Locks exclude other processes.
    BetweenProcesses,
    /// Locks exclude other machines.
    BetweenMachines,
    /// A holder keeps its lock when the store restarts.
    SurvivesRestart,
    /// No two clients hold a lock at once after a replica takes over.
    SurvivesFailover,
    /// Locks can be acquired and kept while one of the store's servers is dead, without waiting for a replica to take
    /// over.
    SurvivesServerDeath,
    /// No two clients hold a lock at once after a server's clock is set.
    SurvivesClockStep,
    /// Mutexes can be fair: granted in the order of the requests.
    Fair,
    /// The store has read-write locks.
    ReadWrite,
    /// The store has semaphores.
    Semaphore,
    /// Each grant has a fencing token.
    Fencing,
    /// Tokens rise through every crash of the store.
    DurableFencing,
    /// The store sends wake-ups to waiters, although some may be lost.
    PromptWakeUp,
    /// The store can list its keys.
    Listing,
}

impl Guarantee {
    /// Every guarantee, in the order of `GUARANTEES.md`.
    pub const ALL: &[Guarantee] = &[
        Guarantee::BetweenProcesses,
        Guarantee::BetweenMachines,
        Guarantee::SurvivesRestart,
        Guarantee::SurvivesFailover,
        Guarantee::SurvivesServerDeath,
        Guarantee::SurvivesClockStep,
        Guarantee::Fair,
        Guarantee::ReadWrite,
        Guarantee::Semaphore,
        Guarantee::Fencing,
        Guarantee::DurableFencing,
        Guarantee::PromptWakeUp,
        Guarantee::Listing,
    ];
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::BetweenProcesses => "locks exclude other processes",
            Guarantee::BetweenMachines => "locks exclude other machines",
            Guarantee::SurvivesRestart => "a holder keeps its lock when the store restarts",
            Guarantee::SurvivesFailover => "two never hold at once when a replica takes over",
            Guarantee::SurvivesServerDeath => {
                "locks can be acquired and kept while one server of three is dead"
            }
            Guarantee::SurvivesClockStep => "two never hold at once when a server's clock is set",
            Guarantee::Fair => "fair mutexes",
            Guarantee::ReadWrite => "read-write locks",
            Guarantee::Semaphore => "semaphores",
            Guarantee::Fencing => "a fencing token with each grant",
            Guarantee::DurableFencing => "tokens that rise through every crash of the store",
            Guarantee::PromptWakeUp => "waiters are woken, not left to poll",
            Guarantee::Listing => "keys can be listed",
        })
    }
}
