//! The queue of one key: which callers of this client hold it, which wait, and which of them asks the store.
//!
//! # The algorithm
//!
//! A client has one queue for each key and kind of lock. All its locks of that key and kind go through the queue, so
//! the store usually sees one caller at a time where this client has thousands.
//!
//! A caller that **arrives** at a free key asks the store itself: it polls its own call, without a task in between.
//! While a holder, a waiter or a call of the same client is in the way, the caller **waits** in the queue instead, in
//! the order of arrival. A caller that only tries never waits: it fails at once if a holder of this client excludes
//! it.
//!
//! While callers wait, one task of the client, the **poller**, asks the store on behalf of the first of them. It
//! polls at intervals and after each wake-up from the store. It does not ask while a holder of this client excludes
//! that waiter, while a caller's own call is in flight (unless the caller is fair or only tries), or while a release
//! that names a successor is in flight.
//!
//! Some stores keep all claims on a key in one order, and grant an unfair claim only while none waits. There, a caller
//! that may wait and needs the key for itself places its claim in the store's queue by its own call. So it usually has
//! its place after one call. If the claim must wait, it is **standing**: if the poller would ask for the same request
//! at its next look, it goes on with this claim, and otherwise withdraws it.
//!
//! A grant is **offered** to the first waiter: the queue wakes the waiter, which holds the key from its next poll on.
//! If the waiter is not polled within the offer window (100 ms by default), the claim is passed on as after an
//! unlock. The waiter that **missed** the offer keeps its place, but gets no offer until it is polled again. So a
//! future that is kept and not polled delays the other waiters once, and not at each grant.
//!
//! Readers are served together. A read claim that the poller or a release asks for reserves, if the limits allow, a
//! token for each waiting reader up to the first waiter with another request. The grant is offered to all of these
//! readers: they **share** the claim, and it ends with the last of them. The conditions are those of a hand-over in
//! memory (below).
//!
//! Waiters for permits, and readers that cannot share the claim, are **invited** after a grant, up to the first
//! waiter that the holders exclude. Each of them calls the store itself at its next poll, and keeps its place if the
//! store refuses. An invitation that is not taken within the offer window ends. While other clients wait for permits,
//! no waiter for permits is invited.
//!
//! A **holder that unlocks** passes its claim on in the cheapest way that is safe:
//!
//! 1. *In memory*, to the first waiter, with the next token that the claim reserved. Only to a request with the same
//!    options, with a token left, before the local deadline, and within 10 ms of the last request that the store
//!    confirmed. After an eviction a store grants the key to no claim for 10 ms, so the evicted claim is not handed
//!    over after a grant with a greater token.
//! 2. *Through the store*, in one call: the release names a new claim of the first waiter as its **successor**.
//! 3. *Back to the store*, for any client. With the option `linger`, if no caller waits, the client first keeps the
//!    claim for up to 10 ms, and hands it in memory to a caller that arrives.
//!
//! A holder that **downgrades** its write lock goes on holding, as a reader. As soon as the downgrade is requested,
//! its claim is not handed over in memory, because the store may count it as a read claim. When the store has
//! confirmed the downgrade, the queue counts the claim as a read claim too, and the poller asks for the first waiter
//! if that is a reader. Readers behind a waiting writer still wait.
//!
//! The **handover policy** decides how often 1 and 2 may follow each other before other clients have a turn:
//!
//! - If other clients are known to wait, each waiter that waits at the grant gets one turn of the claim. In the first
//!   250 µs after the grant, each gets up to four turns, as long as the claim has at most 32 turns.
//! - A client on a network pauses for 5 ms after it has kept a key for a second.
//! - If the store cannot report waiters, other clients go first, for up to 10 ms, after every fourth claim.
//! - On a network, the client that held the key last asks last after a wake-up. Otherwise chance would decide which
//!   of the waiting clients gets the key.
//!
//! A **fair** caller always asks the store itself. It waits not here but in the store, with a claim and a poller of
//! its own. The queue has an entry for this waiter, to offer it the grant. If this waiter misses the offer, it loses
//! its place.
//!
//! A caller may **leave** at any moment. An offer that it had is passed on as after an unlock. Its call in flight is
//! adopted by a task, which releases the claim that the call may have placed.
//!
//! # How it is built
//!
//! [`KeyQueue`](state::KeyQueue) is a state machine: an [event](state::Event) and the time go in, a reply and
//! [effects](effects::Effects) come out. It reads no clock, starts no task and calls no store. The events are grouped
//! by their source: those of callers in [`callers`], of holders in [`holders`], of pollers in [`polls`], and of the
//! timer in [`linger`]. [`SharedQueue::apply`] locks the queue, reads the clock, applies one event and unlocks the
//! queue. Only then does it wake callers, start the poller and send releases.
//!
//! ```text
//!                 first local waiter, or an offer
//!        Idle -------------------------------------> Polling <-------------> HandingOver
//!         ^                                            |   release with a successor /
//!         +--------------------------------------------+   its answer
//!                 no waiter and no offer left
//!
//!        every phase --- close ---> Closed
//! ```
//!
//! The states of one waiter are in [`waiter`].
//!
//! # Invariants
//!
//! - **Q1** Of the callers that would wait here for a mode that excludes others, at most one asks the store at a
//!   time: by its own call, by the poller, or by a release with a successor.
//! - **Q2** The holds in the queue admit each other, except those that are past their local deadline and those that
//!   the store has evicted. A write hold counts as a read hold from the request for its downgrade on.
//! - **Q3** Every grant of the store is held, offered, kept to linger, or released: none is forgotten. Every standing
//!   claim is asked for again, or withdrawn.
//! - **Q4** A grant that is handed over in memory has a greater token than every conflicting grant that a caller of
//!   any client got before it.
//! - **Q5** A waiter that can be served is never forgotten: while a local waiter waits, a poller runs, or the queue
//!   is closed.
//! - **Q6** A waiter gets a grant only of a request with the same options.
//! - **Q7** When the last caller has left and the last call has ended, no state of former waiters is left.
//! - **Q8** The queue is not locked while a waker runs or the store is called.

mod callers;
mod demand;
mod effects;
mod ending;
mod holders;
mod linger;
mod policy;
mod polls;
mod registry;
mod shared;
mod state;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;
mod waiter;

pub(crate) use callers::{
    Arrival, Arrived, Ask, CallAdopted, CallEnded, CallOutcome, CallReply, CallerKind, CallerLeft, PollReply,
    Polled,
};
pub(crate) use holders::Exit;
pub(crate) use policy::{FIRST_RESERVE, PolicyLimits};
pub(crate) use registry::Registry;
pub(crate) use shared::SharedQueue;
pub(crate) use state::Rules;
pub(crate) use waiter::WaiterId;
