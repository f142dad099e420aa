//! The contract: the trait that every store implements, and its numbered rules.

use std::fmt::Debug;
use std::sync::Arc;

use crate::{
    AcquireReply, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant, Invalidations,
    LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

/// A store of claims: Redis, a SQL database, ZooKeeper, etcd, this process's memory, or your own.
///
/// The store decides atomically which claim holds a key and which token it gets. The engine of the crate `tenure` does
/// the waiting, the renewing and the giving up. Each rule below has test cases in the conformance suite of
/// `tenure-testkit`; `docs/RULES.md` lists them by the rule's number.
///
/// # Guarantees
/// - **B1 Mutual exclusion.** While the leases of two claims last, the store never grants both of them if
///   [`Mode::admits`](crate::Mode::admits) refuses the combination.
/// - **B2 One kind per key.** A key has one [`Kind`](crate::Kind) while a claim holds it or queues for it. The store
///   answers a claim of another kind with [`Fault::Mismatch`](crate::Fault).
/// - **B3 The client's lease ends first.** The store counts leases on its own clock if it has one.
///   [`held_from`](crate::Grant::held_from) is never later than the start of the store's count, so the client stops
///   believing in a lease before the store ends it.
/// - **B4 Placing has a deadline.** The store never places (grants or queues) a claim after `not_after`, which is at
///   most [`MAX_NOT_AFTER`](crate::MAX_NOT_AFTER) ahead. So a delayed request cannot bring a released claim back. A
///   claim that is placed already may be polled after `not_after`. A store without a clock answers before `not_after`,
///   with `TooLate` or with an error of unknown effect; if it carries the request out later all the same, the next
///   `release` of the claim undoes that.
/// - **B5 Ending is final.** A claim that was released, was evicted or has expired is never granted again. `acquire`
///   answers it with `Ended` and `renew` with `Gone`. A layout that cannot remember ended claims sets
///   [`Profile::remembers_ended`] to false.
/// - **B6 Renewing only prolongs.** `renew` never creates a claim and never releases one. With
///   [`RenewRequest::shorten_only`] it never lengthens a lease.
/// - **B7 Repetition is safe** for every request that names a claim. `acquire` on a granted claim returns the same
///   tokens and restarts the lease, unless that lease has ended. `acquire` on a waiting claim keeps its place
///   in the queue and restarts its lease. `release` removes the claim, whatever state it was in. A release of
///   [`ReleaseTarget::All`](crate::ReleaseTarget) names no claim, so the engine never repeats it on its own: another
///   client may hold the key by then.
/// - **B8 A claim waits until `acquire` has answered `Granted`.** That holds even on a store that counts the first
///   claim of its queue as the owner of the key. Before that answer a renewal with `Phase::Granted` has no effect.
/// - **B9 A refusal changes nothing.** A request that was refused without effect has not ended its claim. The store
///   refuses without effect what its profile does not offer. A backend never resends a request that was answered.
/// - **B10 Tokens rise.** The tokens of a key rise strictly across releases, expiries, evictions and restarts, as far
///   as [`Profile::fencing`] promises. [`RenewRequest::raise`] lifts the key's counter.
/// - **B11 Queue order.** `Fifo` claims are granted in the order in which they were placed. A claim that cannot be
///   granted yet holds back all claims behind it. A queue with a live member holds back unfair claims. A dead waiter
///   holds the queue up for at most its own lease.
/// - **B12 Leases end.** A claim that is not renewed ends with its lease, at most
///   [`Limits::expiry_slack`](crate::Limits) late. A renewed claim lives for the lease that the renewal asked for.
/// - **B13 Eviction.** An evicted claim is gone. Its next renewal is answered with [`Loss::Evicted`](crate::Loss), which
///   names the evictor, if the store remembers the eviction. If the claim was granted, the store then grants the key to
///   no claim for the [`cooldown`](crate::ReleaseRequest::cooldown). The eviction of a waiter starts no cooldown. A store
///   that keeps no cooldown has [`max_grants`](crate::Limits::max_grants) 1.
/// - **B14 A release wakes waiters.** If the store has wake-ups, a release, a withdrawal or an eviction wakes the
///   claims that can be granted next. If these never poll, one more waiter can proceed after a [`TURN`](crate::TURN): the
///   store wakes it together with them, or at the latest when their turn has ended. A renewal that shortens a holder's
///   lease wakes those that would sleep beyond its end.
/// - **B15 Successors yield.** A release grants its successor only if, as far as the store knows, no claim of another
///   client waits. A successor that is refused for this reason alone, or because the key has another kind, is answered
///   `Waiting` with a `poll_after` of one `TURN`.
/// - **B16 Every call ends**, if need be with an error of unknown effect: the other waiters for a key wait behind a
///   call that does not return. A panic counts as such an error.
/// - **B17 Batch elements are independent.** If one element fails, for example because its shard is down, the replies
///   to the others are not delayed and do not turn into `Unknown`.
/// - **B18 Dropping a call harms nothing else.** The effect of the dropped call itself may stay unknown.
/// - **B19 Nothing is left per name.** A key that no claim holds or waits for takes no space once all its leases and
///   cooldowns have ended. What other clients of the layout need there may stay; the store's documentation names it.
/// - **B20 A downgrade is atomic.** A renewal with [`RenewRequest::downgrade`] turns a granted write claim into a read
///   claim in the same step that renews it, so no other writer holds the key in between. It then wakes the claims that
///   can be granted next. They are admitted in the usual order (B11): no reader overtakes a waiting fair writer. The
///   claim keeps its ID, its label and its tokens: the protected resource may have seen them, and all later grants have
///   greater ones (B10). Later calls treat it as a read claim. A claim of a mutex or a semaphore is refused without
///   effect.
/// - **B21 Invalidations are hints.** They decide nothing, and may be false, repeated or lost. A store that reports an
///   eviction does so after the claim is gone.
/// - **B22 Turns.** This rule holds on a store with [`Profile::reserves_turns`]. If no claim queues, a release reserves the
///   freed key for one `TURN`, for the watching unfair claims of other clients that have watched longest and can hold the
///   key together. The order at a release is: a fair successor, then turns, then an unfair successor. During a turn the
///   key counts as held for the unfair claims of other clients; fair claims ignore turns. A turn ends when its claim
///   ends, is no longer watched, or is polled outside of a cooldown, but not when another claim is polled. A claim that
///   let its turn pass may belong to a dead client: until it is polled, it gets no turn and does not count in
///   [`others`](crate::ReleaseReply::Done::others).
///
/// # Cancel safety
/// Dropping a [`Call`] or a [`BatchCall`] may leave its effect unknown (B18). The engine never drops an `acquire`,
/// `renew` or `release` of its own claims after its first poll: it moves the call to a background task. Evictions and
/// calls that only read are dropped together with their caller.
///
/// An `acquire` or a `release` may move to another runtime between two polls, and the runtime that polled it first may
/// have shut down by then. A timer of that runtime would panic. Use timers only in tasks of the runtime on which the
/// store was opened.
///
/// # Errors
/// Every error carries its [`Effect`](crate::Effect). In a batch each element has its own answer (B17).
///
/// No method has a default, so that a decorator cannot forget to forward one.
///
/// # Examples
/// The [crate's page](crate) ends with a complete backend: mutexes in a map. It passes the conformance suite.
pub trait Backend: Debug + Send + Sync + 'static {
    /// What this store promises and what it cannot do.
    fn profile(&self) -> &Profile;

    /// The clock on which `held_from` and `not_after` are read. The engine reads the same clock.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// Grants or queues a new claim; polls one that waits or holds the key. Never waits for another holder.
    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply>;

    /// Prolongs the leases of claims. Never creates a claim, never releases one (B6).
    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply>;

    /// Removes holders or waiters, wakes the next waiters, and grants the request's successor if no other client is
    /// known to wait (B15). Each element of the batch is one atomic step.
    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply>;

    /// Subscribes a waiting claim to wake-ups, which mean "poll now".
    ///
    /// If this call fails, the engine only polls.
    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes>;

    /// Subscribes a client to hints that claims which it holds may be gone. `None` if the store gives none.
    ///
    /// The store reports [`Invalidation::Key`](crate::Invalidation) when it evicts the client's claim on a key, and
    /// [`Invalidation::All`](crate::Invalidation) once after each new subscription, and after a connection was replaced: the
    /// server behind the new one may have lost claims. The engine renews the claims that are named. It calls this once, when
    /// the client has held a claim for 100 ms.
    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations>;

    /// Lists holders and waiters for people and tools. The engine never decides by a listing which claim holds a key.
    ///
    /// A query for one key fails with [`Fault::UnknownKind`](crate::Fault) if this layout cannot read the key's data.
    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>>;

    /// Reports everything about the store that weakens its locks, for `tenure doctor`.
    fn examine(self: Arc<Self>) -> Call<Vec<Finding>>;

    /// Closes connections and threads. Later calls fail with [`Fault::Closed`](crate::Fault).
    fn close(self: Arc<Self>) -> Call<()>;
}
