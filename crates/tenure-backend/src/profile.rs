//! What a store promises, as data: one source for refusals, the choice of tests, `GUARANTEES.md` and `doctor`.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Fairness, Mode};

/// What one store in one layout promises, and what it cannot do.
///
/// Deliberately exhaustive: a new promise makes every backend say where it stands.
///
/// # Examples
/// ```
/// use tenure_backend::*;
/// # use std::{num::NonZeroU32, time::Duration};
/// # let inspection = Inspection { lists: true, queue: true, labels: true, remaining: true };
/// # let limits = Limits { min_lease: Duration::from_millis(1), max_lease: Duration::from_secs(3_600),
/// #     max_grants: NonZeroU32::MIN, max_batch: NonZeroU32::MIN, margin: None, expiry_slack: Duration::ZERO };
///
/// let profile = Profile {
///     store: "shelf", layout: "rows", reach: Reach::Network,
///     mutex: Order::FifoForBoth, read_write: Order::None, semaphore: Order::Unfair,
///     liveness: Liveness::Lease(LeaseClock::ServerWall),
///     hazards: &[Hazard::ClockSet, Hazard::Failover],
///     fencing: Fencing::UntilDataLossAndBackwardClock, wake_up: WakeUp::Poll,
///     remembers_ended: true, reports_waiters: false, inspection, first_renewal: None, limits,
/// };
/// assert!(profile.serves(Mode::Exclusive, Fairness::Unfair), "in order of arrival, all the same");
/// assert!(!profile.serves(Mode::Read, Fairness::Unfair), "refused without effect");
/// assert!(profile.offers(Guarantee::SurvivesRestart) && profile.offers(Guarantee::Fencing));
/// assert!(!profile.offers(Guarantee::SurvivesFailover) && !profile.offers(Guarantee::DurableFencing));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The store's name: `memory`, `sqlite`, `redis`.
    pub store: &'static str,
    /// The format it writes: `claims`, `redisson`.
    pub layout: &'static str,
    /// Who can share its locks.
    pub reach: Reach,
    /// In which orders it serves mutexes.
    pub mutex: Order,
    /// In which orders it serves read-write locks.
    pub read_write: Order,
    /// In which orders it serves semaphores.
    pub semaphore: Order,
    /// How a dead holder is noticed.
    pub liveness: Liveness,
    /// What must happen before two can hold at once, beside a holder that was paused beyond its deadline.
    pub hazards: &'static [Hazard],
    /// How far its tokens can be trusted.
    pub fencing: Fencing,
    /// How a waiter learns that it may go on.
    pub wake_up: WakeUp,
    /// Whether it remembers ended claims until their `not_after` has passed.
    pub remembers_ended: bool,
    /// Whether a release can tell how many wait elsewhere.
    pub reports_waiters: bool,
    /// What can be seen.
    pub inspection: Inspection,
    /// Time after a grant at which the store wants the claim's first renewal, also if its lease is fixed; `None` if it does
    /// not care. Until then [`inspect`](crate::Backend::inspect) may show a holder without label and token.
    pub first_renewal: Option<Duration>,
    /// Its bounds.
    pub limits: Limits,
}

/// Who can share a store's locks.
///
/// # Examples
/// See [`Profile`]: what reaches the network also excludes the processes of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Tasks and threads of this process.
    Process,
    /// Processes of this machine.
    Machine,
    /// Everybody who reaches the server.
    Network,
}

/// In which orders a store serves one kind of lock.
///
/// # Examples
/// See [`Profile`], whose [`serves`](Profile::serves) reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Not at all.
    None,
    /// Unfair claims only.
    Unfair,
    /// Fair claims only: unfair ones are refused.
    Fifo,
    /// Both.
    Both,
    /// The store has one order: an unfair claim is served as a fair one.
    FifoForBoth,
}

/// How a dead holder is noticed.
///
/// # Examples
/// ```
/// use tenure_backend::{LeaseClock, Liveness};
///
/// fn dead_holder_blocks_for(liveness: Liveness) -> &'static str {
///     match liveness {
///         Liveness::Lease(_) => "at most what is left of its lease",
///         Liveness::Session => "as long as the server keeps its session",
///     }
/// }
/// let blocked = dead_holder_blocks_for(Liveness::Lease(LeaseClock::Shared));
/// assert_eq!(blocked, "at most what is left of its lease");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// BatchCall claim has a lease that the store counts.
    Lease(LeaseClock),
    /// The claim lives as long as a session; V1 is not promised between its death and the holder's notice.
    Session,
}

/// On which clock a store counts leases.
///
/// # Examples
/// ```
/// use tenure_backend::{Hazard, LeaseClock};
///
/// /// What goes with a clock into `Profile::hazards`.
/// fn hazards(clock: LeaseClock) -> &'static [Hazard] {
///     match clock {
///         LeaseClock::ServerWall => &[Hazard::ClockSet],
///         LeaseClock::Shared | LeaseClock::ServerMonotonic => &[],
///     }
/// }
/// assert_eq!(hazards(LeaseClock::ServerWall), [Hazard::ClockSet]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseClock {
    /// The clock that the client reads too.
    Shared,
    /// A server's wall clock, which can be set.
    ServerWall,
    /// A server's monotonic clock.
    ServerMonotonic,
}

/// Something that must happen before two can hold at once.
///
/// # Examples
/// See [`Profile`], whose [`offers`](Profile::offers) reads it, and [`LeaseClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hazard {
    /// The store's data is lost or replaced by an older copy.
    DataLoss,
    /// The server restarts without having kept every write.
    Restart,
    /// The server's clock is set forward.
    ClockSet,
    /// A replica that had not received every write takes over.
    Failover,
    /// The session dies before its holder notices.
    SessionDeath,
}

/// How far a store's tokens can be trusted to rise.
///
/// # Examples
/// ```
/// use tenure_backend::Fencing;
///
/// // From the weakest to the strongest: a program names the least that it needs.
/// let enough_for_a_ledger = |fencing| fencing >= Fencing::Durable;
/// assert!(!enough_for_a_ledger(Fencing::Process));
/// assert!(Fencing::None < Fencing::Process && Fencing::Process < Fencing::UntilDataLossAndBackwardClock);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fencing {
    /// It has none.
    None,
    /// As long as this process lives.
    Process,
    /// Until the store loses its data and its clock runs backward.
    UntilDataLossAndBackwardClock,
    /// Through every crash: each is on stable storage before it is granted. Only a store that was lost, or replaced by
    /// an older copy, and whose clock also ran backward, repeats one.
    Durable,
}

/// How a waiter learns that it may go on.
///
/// # Examples
/// ```
/// use tenure_backend::WakeUp;
///
/// // What `Guarantee::PromptWakeUp` asks for. Beside every wake-up a waiter polls, so a lost one costs time alone.
/// let is_prompt = |wake_up| wake_up > WakeUp::Poll;
/// assert!(is_prompt(WakeUp::Lossy) && is_prompt(WakeUp::Reliable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WakeUp {
    /// By asking again.
    Poll,
    /// By a message that may be lost.
    Lossy,
    /// By a message that is not lost while the connection lasts.
    Reliable,
}

/// What `inspect` can show.
///
/// # Examples
/// See [`Profile`]; what is found is a [`LockStatus`](crate::LockStatus).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// Whether keys can be listed by prefix.
    pub lists: bool,
    /// Whether waiters are shown, in order.
    pub queue: bool,
    /// Whether labels are recorded.
    pub labels: bool,
    /// Whether the time left of a lease is known.
    pub remaining: bool,
}

/// A store's bounds.
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tenure_backend::{BackendError, Effect, Fault, Limits};
///
/// let limits = Limits {
///     min_lease: Duration::from_secs(1),
///     max_lease: Duration::from_secs(60),
///     max_grants: NonZeroU32::MIN,
///     max_batch: NonZeroU32::new(128).unwrap(),
///     margin: None,
///     expiry_slack: Duration::ZERO,
/// };
/// let lease = |asked: Duration| {
///     let refusal = BackendError::new(Fault::Limit, Effect::None, "a lease is at most 1m");
///     if asked > limits.max_lease { Err(refusal) } else { Ok(asked.max(limits.min_lease)) }
/// };
/// assert_eq!(lease(Duration::from_millis(50)).unwrap(), limits.min_lease);
/// assert_eq!(lease(Duration::from_secs(61)).unwrap_err().fault(), Fault::Limit);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The shortest lease; a shorter one is rounded up.
    pub min_lease: Duration,
    /// The longest lease; a longer one is answered `Fault::Limit`.
    pub max_lease: Duration,
    /// How many tokens a grant may reserve: 1 where each hand-over needs a claim of its own.
    pub max_grants: NonZeroU32,
    /// How many elements one renewal or release may have.
    pub max_batch: NonZeroU32,
    /// What the engine takes off a lease on top of clock drift; `None` for its own margin.
    pub margin: Option<Duration>,
    /// How much later than a lease's end the store may end it: the step of its clock, or how often it looks for the
    /// dead. A holder's belief is no longer for it.
    pub expiry_slack: Duration,
}

impl Profile {
    /// In which orders the store serves claims of that mode.
    pub fn order(&self, mode: Mode) -> Order {
        match mode {
            Mode::Exclusive => self.mutex,
            Mode::Read | Mode::Write => self.read_write,
            Mode::Permits { .. } => self.semaphore,
        }
    }

    /// Whether the store serves claims of that mode and fairness.
    pub fn serves(&self, mode: Mode, fairness: Fairness) -> bool {
        match fairness {
            Fairness::Unfair => matches!(self.order(mode), Order::Unfair | Order::Both | Order::FifoForBoth),
            Fairness::Fifo => matches!(self.order(mode), Order::Fifo | Order::Both | Order::FifoForBoth),
        }
    }

    /// Whether the store gives that guarantee.
    pub fn offers(&self, guarantee: Guarantee) -> bool {
        let safe_from = |hazard| !self.hazards.contains(&hazard);
        match guarantee {
            Guarantee::BetweenProcesses => self.reach != Reach::Process,
            Guarantee::BetweenMachines => self.reach == Reach::Network,
            Guarantee::SurvivesRestart => {
                self.reach != Reach::Process && safe_from(Hazard::Restart) && safe_from(Hazard::SessionDeath)
            }
            Guarantee::SurvivesFailover => {
                self.offers(Guarantee::SurvivesRestart)
                    && self.reach == Reach::Network
                    && safe_from(Hazard::Failover)
            }
            Guarantee::SurvivesClockStep => safe_from(Hazard::ClockSet),
            Guarantee::Fair => self.serves(Mode::Exclusive, Fairness::Fifo),
            Guarantee::ReadWrite => self.read_write != Order::None,
            Guarantee::Semaphore => self.semaphore != Order::None,
            Guarantee::Fencing => self.fencing != Fencing::None,
            Guarantee::DurableFencing => self.fencing == Fencing::Durable,
            Guarantee::PromptWakeUp => self.wake_up != WakeUp::Poll,
            Guarantee::Listing => self.inspection.lists,
        }
    }
}

/// A promise that a program can demand of its store before it relies on it.
///
/// # Examples
/// ```
/// use tenure_backend::{Guarantee, Profile};
///
/// /// What a program would miss on a store, in words for people; `tenure`'s `Client::require` demands one.
/// fn missing(profile: &Profile) -> Vec<String> {
///     let missing = Guarantee::ALL.iter().filter(|guarantee| !profile.offers(**guarantee));
///     missing.map(|guarantee| guarantee.to_string()).collect()
/// }
/// assert_eq!(Guarantee::BetweenMachines.to_string(), "locks exclude other machines");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// Locks exclude other processes.
    BetweenProcesses,
    /// Locks exclude other machines.
    BetweenMachines,
    /// A holder keeps its lock when the store restarts.
    SurvivesRestart,
    /// Two never hold at once when a replica takes over.
    SurvivesFailover,
    /// Two never hold at once when a server's clock is set.
    SurvivesClockStep,
    /// Fair mutexes.
    Fair,
    /// Read-write locks.
    ReadWrite,
    /// Semaphores.
    Semaphore,
    /// BatchCall grant has a token.
    Fencing,
    /// Tokens rise through every crash of the store.
    DurableFencing,
    /// Waiters are woken, not left to poll.
    PromptWakeUp,
    /// Keys can be listed.
    Listing,
}

impl Guarantee {
    /// Every guarantee, in the order of `GUARANTEES.md`.
    pub const ALL: &[Guarantee] = &[
        Guarantee::BetweenProcesses,
        Guarantee::BetweenMachines,
        Guarantee::SurvivesRestart,
        Guarantee::SurvivesFailover,
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
