//! The promises of a store as data, from which refusals, the choice of tests, `GUARANTEES.md` and `doctor` follow.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Fairness, Guarantee, Mode};

/// The promises and limits of one store in one layout.
///
/// A backend starts with [`new`](Profile::new), which promises nothing, and sets a field for each promise that it keeps.
/// Programs read the fields. Structs and enums of a profile may grow: a field that is added later has the weakest value in
/// a backend that does not set it.
///
/// # Examples
/// ```
/// use tenure_backend::*;
/// # use std::time::Duration;
///
/// static SHELF: Profile = {
///     let limits = Limits::new(Duration::from_millis(1), Duration::from_secs(3_600));
///     let liveness = Liveness::Lease(LeaseClock::ServerWall);
///     let mut profile = Profile::new("shelf", "rows", liveness, &[Hazard::ClockSet, Hazard::Failover], limits);
///     profile.reach = Reach::Network;
///     profile.mutex = Order::FifoForBoth;
///     profile.semaphore = Order::Unfair;
///     profile.fencing = Fencing::UntilDataLossAndBackwardClock;
///     profile.remembers_ended = true;
///     profile
/// };
/// let profile = &SHELF;
/// assert!(profile.serves(Mode::Exclusive, Fairness::Unfair), "this store serves unfair claims in order, too");
/// assert!(!profile.serves(Mode::Read, Fairness::Unfair), "refused without effect");
/// assert!(profile.offers(Guarantee::SurvivesRestart) && profile.offers(Guarantee::Fencing));
/// assert!(!profile.offers(Guarantee::SurvivesFailover) && !profile.offers(Guarantee::DurableFencing));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Profile {
    /// The store's name, such as `memory`, `sqlite` or `redis`.
    pub store: &'static str,
    /// The name of the store's data format, such as `claims` or `redisson`.
    pub layout: &'static str,
    /// Another layout of the store, which serves kinds of locks that this one does not; `None` if there is none.
    pub fuller_layout: Option<&'static str>,
    /// Which clients can share the store's locks.
    pub reach: Reach,
    /// Which mutexes the store serves: fair, unfair, both or none.
    pub mutex: Order,
    /// Which read-write locks the store serves: fair, unfair, both or none. A store that has them also downgrades write
    /// claims (B20).
    pub read_write: Order,
    /// Which semaphores the store serves: fair, unfair, both or none.
    pub semaphore: Order,
    /// How the store detects a dead holder.
    pub liveness: Liveness,
    /// Events that can make two clients hold a lock at once, besides a holder that is paused beyond its deadline.
    pub hazards: &'static [Hazard],
    /// What a dead server of the store means for its locks.
    pub server_death: ServerDeath,
    /// Number of replicas that must have a grant or a renewal before it counts; 0 if none must.
    pub replicas: u64,
    /// Through which failures the store's fencing tokens keep rising.
    pub fencing: Fencing,
    /// Whether a renewal can raise the tokens ([`RenewRequest::raise`](crate::RenewRequest::raise)), which a quorum needs.
    pub raises_tokens: bool,
    /// How a waiter learns that its claim can be granted.
    pub wake_up: WakeUp,
    /// Whether the store remembers ended claims until their `not_after` has passed (B5).
    pub remembers_ended: bool,
    /// Whether the reply to a release says how many claims of other clients wait.
    pub reports_waiters: bool,
    /// Whether the store reserves a freed key for the unfair waiter that has watched longest (B22).
    pub reserves_turns: bool,
    /// What `inspect` can show.
    pub inspection: Inspection,
    /// Time after a grant at which the engine must first renew the claim, even one with a fixed lease; `None` if the
    /// store needs no such renewal. It lets the store record the holder's label and token:
    /// [`inspect`](crate::Backend::inspect) may show the holder without them until then.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "first_renewal_ms", serialize_with = "crate::json::opt_ms")
    )]
    pub first_renewal: Option<Duration>,
    /// Limits of leases, tokens and batches.
    pub limits: Limits,
}

/// Which clients can share a store's locks.
///
/// The locks of a store on the network also exclude other processes of the same machine.
///
/// # Examples
/// See [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Reach {
    /// Tasks and threads of this process.
    Process,
    /// Processes of this machine.
    Machine,
    /// All clients that can connect to the server.
    Network,
}

/// Which locks of one kind a store serves: fair, unfair, both or none.
///
/// # Examples
/// See [`Profile`] and its method [`serves`](Profile::serves).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Order {
    /// The store does not serve this kind of lock.
    None,
    /// Unfair claims only.
    Unfair,
    /// Fair claims only. Unfair claims are refused.
    Fifo,
    /// Fair and unfair claims.
    Both,
    /// Fair and unfair claims, in one order: an unfair claim is granted only if no claim waits, and is not queued.
    FifoForBoth,
}

/// How a store detects a dead holder.
///
/// # Examples
/// ```
/// use tenure_backend::{LeaseClock, Liveness};
///
/// fn dead_holder_blocks_for(liveness: Liveness) -> &'static str {
///     match liveness {
///         Liveness::Lease(_) => "at most what is left of its lease",
///         Liveness::Session => "as long as the server keeps its session",
///         _ => "unknown",
///     }
/// }
/// let blocked = dead_holder_blocks_for(Liveness::Lease(LeaseClock::Shared));
/// assert_eq!(blocked, "at most what is left of its lease");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Liveness {
    /// Each claim has a lease, which the store counts on this clock.
    Lease(LeaseClock),
    /// The claim lives as long as its client's session. Mutual exclusion (B1) is not promised between the end of the
    /// session and the moment at which the holder detects it.
    Session,
}

/// The clock on which a store counts leases.
///
/// # Examples
/// ```
/// use tenure_backend::{Hazard, LeaseClock};
///
/// /// The hazards that a clock adds to `Profile::hazards`.
/// fn hazards(clock: LeaseClock) -> &'static [Hazard] {
///     match clock {
///         LeaseClock::ServerWall => &[Hazard::ClockSet],
///         _ => &[],
///     }
/// }
/// assert_eq!(hazards(LeaseClock::ServerWall), [Hazard::ClockSet]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum LeaseClock {
    /// The same clock that the client reads.
    Shared,
    /// A server's wall clock. An administrator or NTP can set it.
    ServerWall,
    /// A server's monotonic clock.
    ServerMonotonic,
}

/// An event that can make two clients hold a lock at once.
///
/// # Examples
/// See [`LeaseClock`], and [`Profile`] with its method [`offers`](Profile::offers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Hazard {
    /// The store's data is lost or replaced by an older copy.
    DataLoss,
    /// The server restarts without the latest writes.
    Restart,
    /// The server's clock is set forward, or a server takes over whose clock is ahead.
    ClockSet,
    /// A replica without the latest writes takes over.
    Failover,
    /// A server fails while locks are being moved from it to another server, so the store grants them again.
    InterruptedMove,
    /// The session of a holder ends before the holder detects that.
    SessionDeath,
}

/// What a dead server means for the locks of its store.
///
/// # Examples
/// ```
/// use tenure_backend::ServerDeath;
///
/// // The variants are ordered from the weakest to the strongest. This is the condition of `Guarantee::SurvivesServerDeath`.
/// let keeps_serving = |death| death == ServerDeath::Tolerated;
/// assert!(!keeps_serving(ServerDeath::OutageUntilFailover));
/// assert!(ServerDeath::Outage < ServerDeath::OutageUntilFailover);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum ServerDeath {
    /// No lock can be acquired or renewed until the server is back.
    Outage,
    /// The locks of the server cannot be acquired or renewed until a replica has taken over. A server without replicas is
    /// an outage.
    OutageUntilFailover,
    /// Locks are acquired and renewed as before while one server is dead.
    Tolerated,
}

/// Through which failures a store's fencing tokens keep rising.
///
/// # Examples
/// ```
/// use tenure_backend::Fencing;
///
/// // The variants are ordered from the weakest to the strongest, so a program can require a minimum.
/// let enough_for_a_ledger = |fencing| fencing >= Fencing::Durable;
/// assert!(!enough_for_a_ledger(Fencing::Process));
/// assert!(Fencing::None < Fencing::Process && Fencing::Process < Fencing::UntilDataLossAndBackwardClock);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Fencing {
    /// The store has no tokens.
    None,
    /// Tokens rise as long as this process lives.
    Process,
    /// A store that loses its token counter continues from its clock. Tokens rise unless that clock is behind the
    /// lost counter, for example because the clock ran backward.
    UntilDataLossAndBackwardClock,
    /// Tokens rise through every crash, because each is on stable storage before it is granted. A token can repeat only if
    /// the data is lost or replaced by an older copy and the clock also runs backward.
    Durable,
}

/// How a waiter learns that its claim can be granted.
///
/// # Examples
/// ```
/// use tenure_backend::WakeUp;
///
/// // The condition of `Guarantee::PromptWakeUp`. Waiters also poll, so a lost wake-up only costs time.
/// let is_prompt = |wake_up| wake_up > WakeUp::Poll;
/// assert!(is_prompt(WakeUp::Lossy) && is_prompt(WakeUp::Reliable));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum WakeUp {
    /// The waiter polls.
    Poll,
    /// The waiter gets a message, which may be lost.
    Lossy,
    /// The waiter gets a message, which is not lost while the connection lasts.
    Reliable,
}

/// What `inspect` can show.
///
/// # Examples
/// See [`Profile`]. `inspect` replies with [`LockStatus`](crate::LockStatus)es.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Inspection {
    /// Whether `inspect` lists keys by any prefix, even an empty one, which matches all keys. A store that cannot
    /// list all keys may still accept a prefix that is not empty.
    pub lists: bool,
    /// Whether `inspect` shows waiters, in their order.
    pub queue: bool,
    /// Whether `inspect` shows labels.
    pub labels: bool,
    /// Whether `inspect` shows the time that is left of a lease.
    pub remaining: bool,
}

impl Inspection {
    /// Shows no more than the holders of one key.
    pub const NONE: Inspection = Inspection {
        lists: false,
        queue: false,
        labels: false,
        remaining: false,
    };
    /// Shows all.
    pub const ALL: Inspection = Inspection {
        lists: true,
        queue: true,
        labels: true,
        remaining: true,
    };
}

/// The limits of a store.
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use tenure_backend::{BackendError, Effect, Fault, Limits};
///
/// let mut limits = Limits::new(Duration::from_secs(1), Duration::from_secs(60));
/// limits.max_batch = NonZeroU32::new(128).unwrap();
/// let lease = |asked: Duration| {
///     let refusal = BackendError::new(Fault::Limit, Effect::None, "a lease is at most 1m");
///     if asked > limits.max_lease { Err(refusal) } else { Ok(asked.max(limits.min_lease)) }
/// };
/// assert_eq!(lease(Duration::from_millis(50)).unwrap(), limits.min_lease);
/// assert_eq!(lease(Duration::from_secs(61)).unwrap_err().fault(), Fault::Limit);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Limits {
    /// The shortest lease. Shorter requests are rounded up.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "min_lease_ms", serialize_with = "crate::json::ms")
    )]
    pub min_lease: Duration,
    /// The longest lease. Longer requests are refused with `Fault::Limit`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "max_lease_ms", serialize_with = "crate::json::ms")
    )]
    pub max_lease: Duration,
    /// Greatest number of tokens that a grant may reserve; 1 if the store itself must grant each hand-over.
    ///
    /// More than 1 promises the cooldown after an eviction (B13): within it, the evicted client may still hand the claim
    /// over locally.
    pub max_grants: NonZeroU32,
    /// Greatest number of elements in one call of `renew` or `release`.
    pub max_batch: NonZeroU32,
    /// Part of the lease, in millionths, that the holder does not use, because its clock may run slower than the store's:
    /// 10,000, which is 1 %, by default.
    pub drift_ppm: u32,
    /// Time from the local deadline to the end of the lease, besides the part for clock drift. `None`: 10 ms, or 1 % of
    /// the lease if that is more.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "margin_ms", serialize_with = "crate::json::opt_ms")
    )]
    pub margin: Option<Duration>,
    /// How late the store may expire a lease, because its clock is coarse or because it looks for expired leases only
    /// now and then. The holder stops at its local deadline all the same.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "expiry_slack_ms", serialize_with = "crate::json::ms")
    )]
    pub expiry_slack: Duration,
}

impl Limits {
    /// Creates the limits of a store that takes one element in each call and grants one token with each claim.
    pub const fn new(min_lease: Duration, max_lease: Duration) -> Self {
        Limits {
            min_lease,
            max_lease,
            max_grants: NonZeroU32::MIN,
            max_batch: NonZeroU32::MIN,
            drift_ppm: 10_000,
            margin: None,
            expiry_slack: Duration::ZERO,
        }
    }
}

impl Profile {
    /// Creates the profile of a store that promises nothing: it serves no kind of lock until its orders are set.
    ///
    /// `liveness` and `hazards` are arguments, so that no author forgets them: how the store detects a dead holder,
    /// and every event that can make two clients hold a lock at once.
    pub const fn new(
        store: &'static str,
        layout: &'static str,
        liveness: Liveness,
        hazards: &'static [Hazard],
        limits: Limits,
    ) -> Self {
        Profile {
            store,
            layout,
            fuller_layout: None,
            reach: Reach::Process,
            mutex: Order::None,
            read_write: Order::None,
            semaphore: Order::None,
            liveness,
            hazards,
            server_death: ServerDeath::Outage,
            replicas: 0,
            fencing: Fencing::None,
            raises_tokens: false,
            wake_up: WakeUp::Poll,
            remembers_ended: false,
            reports_waiters: false,
            reserves_turns: false,
            inspection: Inspection::NONE,
            first_renewal: None,
            limits,
        }
    }

    /// Returns which locks of this mode the store serves: fair, unfair, both or none.
    pub fn order(&self, mode: Mode) -> Order {
        match mode {
            Mode::Exclusive => self.mutex,
            Mode::Read | Mode::Write => self.read_write,
            Mode::Permits { .. } => self.semaphore,
        }
    }

    /// Returns whether the store serves claims of this mode and fairness.
    pub fn serves(&self, mode: Mode, fairness: Fairness) -> bool {
        match fairness {
            Fairness::Unfair => matches!(self.order(mode), Order::Unfair | Order::Both | Order::FifoForBoth),
            Fairness::Fifo => matches!(self.order(mode), Order::Fifo | Order::Both | Order::FifoForBoth),
        }
    }

    /// Returns whether the store gives this guarantee.
    pub fn offers(&self, guarantee: Guarantee) -> bool {
        let withstands = |hazard| !self.hazards.contains(&hazard);
        match guarantee {
            Guarantee::BetweenProcesses => self.reach != Reach::Process,
            Guarantee::BetweenMachines => self.reach == Reach::Network,
            Guarantee::SurvivesRestart => {
                self.reach != Reach::Process
                    && withstands(Hazard::Restart)
                    && withstands(Hazard::SessionDeath)
            }
            Guarantee::SurvivesFailover => {
                self.offers(Guarantee::SurvivesRestart)
                    && self.reach == Reach::Network
                    && withstands(Hazard::Failover)
                    && withstands(Hazard::InterruptedMove)
            }
            Guarantee::SurvivesServerDeath => self.server_death == ServerDeath::Tolerated,
            Guarantee::SurvivesClockStep => withstands(Hazard::ClockSet),
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
