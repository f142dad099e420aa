//! The contract itself: what every store must do.

use std::fmt::Debug;
use std::sync::Arc;

use crate::{
    AcquireReply, Batch, BatchCall, Call, Claim, Clock, Finding, Instant, LockStatus, Page, Profile, Query,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

/// A store of claims: Redis, a SQL database, ZooKeeper, etcd, this process's memory, or yours.
///
/// The store decides atomically who holds a key, and with what token. Waiting, renewing and giving up are the
/// engine's. Every rule below has a case in the conformance suite of `tenure-testkit`.
///
/// # Guarantees
/// - **Mutual exclusion.** Two claims that [`Mode::admits`](crate::Mode::admits) refuses are never granted
///   together, while both leases last. A key is of one [`Kind`](crate::Kind) as long as somebody holds it or
///   queues for it; another kind is answered [`Fault::Mismatch`](crate::Fault).
/// - **Time** is the store's clock wherever it has one. `held_from` is never later than the moment from which
///   the store counts, so that the client's belief ends first.
/// - **Placing ends.** A claim is never placed after `not_after` (at most
///   [`MAX_NOT_AFTER`](crate::MAX_NOT_AFTER) ahead): a request that was delayed on the way cannot re-create a
///   claim after its release. A store without a clock answers by then, `TooLate` or an error of unknown effect; what
///   it carries out after that is undone by, and never outlives, the next `release` of that claim. A claim that is
///   placed already may be polled later than that.
/// - **Ending is final.** A claim that was released, evicted or has expired answers `Ended` to `acquire` and
///   `Gone` to `renew`, and is never granted again. Where a layout cannot remember,
///   [`Profile::remembers_ended`] is false.
/// - **Repetition is safe** for whatever names a claim. `acquire` on a granted claim gives the same tokens and
///   restarts its lease, and never reports a grant that had ended when the lease was restarted; on a waiting claim it
///   keeps its place and restarts its lease. `release` from any state makes the claim absent. A release of
///   [`ReleaseTarget::All`](crate::ReleaseTarget) takes whoever holds by then: nobody repeats it unasked.
/// - **Waiting means not told yet.** Until `acquire` has answered `Granted` a claim waits, whatever the store's queue
///   says of its turn, and `Phase::Waiting` renews it.
/// - **A refusal ends nothing.** A request that was refused without effect has not ended its claim. A backend never
///   sends a request again that was answered.
/// - **Tokens** rise strictly per key across release, expiry, eviction and restart, as far as
///   [`Profile::fencing`] promises.
/// - **Order.** `Fifo` claims are granted in the order in which they were placed; one that is not admitted yet
///   holds back all behind it. A live queue bars unfair claims. A dead waiter holds the queue up for at most
///   its own lease.
/// - **What a backend cannot do it refuses without effect.**
/// - **Every call ends**, with an error of unknown effect if need be: whoever waits for a key waits behind the call that
///   asks for it. A panic is such an error.
///
/// # Cancel safety
/// Dropping a [`Call`] or an [`BatchCall`] may leave its effect unknown, and must not harm anything else. The engine
/// never drops an `acquire`, `renew` or `release` of its own claims that was polled: it moves it to the watchdog. What only
/// looks, and an eviction, is dropped with its caller.
///
/// An `acquire` or a `release` may move to another runtime between two polls, and the one that polled it first may end: a
/// timer of that one would panic. A task of the runtime on which the store was opened may have timers.
///
/// # Errors
/// BatchCall error carries its [`Effect`](crate::Effect). In a batch a failure is an element's own: one shard or
/// chunk that fails never delays or clouds another's.
///
/// There are no default methods: a decorator must not bypass what it wraps.
///
/// # Examples
/// The [page of this crate](crate) ends with a whole backend of mutexes in a map, which passes the conformance suite.
pub trait Backend: Debug + Send + Sync + 'static {
    /// What this store promises and what it cannot do.
    fn profile(&self) -> &Profile;

    /// The clock on which `held_from` and `not_after` are read. The engine reads the same one.
    fn clock(&self) -> &Arc<dyn Clock>;

    /// Places the claim, or polls it if it is there. Never blocks on another holder.
    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply>;

    /// Keeps claims alive. Never re-creates one, never releases one, and never lengthens a lease where
    /// [`RenewRequest::shorten_only`] is set.
    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply>;

    /// Makes holders or waiters absent, wakes who may go next, and grants the successor if nobody else is known to
    /// wait, in one atomic step for each.
    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply>;

    /// Wake-ups for a claim that waits; for one that is granted, "renew it now". An error means: poll only.
    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes>;

    /// Wakes after a connection to the store was replaced; `None` if the store has no connections.
    ///
    /// The engine then renews all that it holds: the server behind the new connection may have lost it.
    fn reconnects(&self) -> Option<Wakes>;

    /// What people and tools see. Never asked to decide who holds.
    ///
    /// A single key that holds what this layout cannot read is [`Fault::UnknownKind`](crate::Fault).
    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>>;

    /// Everything about the store that weakens its locks, for `tenure doctor`.
    fn examine(self: Arc<Self>) -> Call<Vec<Finding>>;

    /// Gives up connections and threads. Later calls are answered [`Fault::Closed`](crate::Fault).
    fn close(self: Arc<Self>) -> Call<()>;
}
