//! The queue of one key: which callers of this client hold it, which wait, and which of them asks the store.
//!
//! # The algorithm
//!
//! A client has one queue for each key and kind of lock. All its locks of that key go through the queue, so the store sees
//! one caller at a time where this client has thousands.
//!
//! A caller that **arrives** at a free key asks the store itself: it polls its own call, and no task is woken. While a
//! holder, a waiter or a call of the same client is in the way, the caller **waits** in the queue instead, in the
//! order of arrival. A caller that only tries never waits: it fails at once if this client holds the key.
//!
//! While callers wait, one task of the client, the **poller**, asks the store on behalf of the first of them: it
//! polls after each wake-up from the store. It does not ask while this client's holds exclude that waiter, while a
//! caller's own call is in flight, and while a release that names a successor is in flight.
//!
//! A grant is **offered** to the first waiter: the waiter is woken, and holds the key when it is polled. An offer that is
//! not taken within the offer window (100 ms) goes to the next waiter. The waiter that **missed** it keeps its place, but
//! gets no offer until it is polled again. So a future that is kept and not polled delays others once, for that time.
//!
//! Readers are served together. The read claim that is granted to the first of them reserves a token for each reader that
//! waits in front of the first writer, and is offered to all of these: they **share** it, and it ends with the last of them.
//! This has the conditions of a hand-over in memory (below).
//!
//! Waiters for permits, and readers that cannot share the claim, are **invited** after a grant, up to the first whose
//! claim the holders exclude. Each calls the store itself at its next poll, at its old place. An invitation that is not taken
//! ends as an offer does. If other clients wait for permits, no waiter is invited.
//!
//! A **holder that unlocks** passes its claim on in the cheapest way that is safe:
//!
//! 1. *In memory*, to the first waiter, with the next token that the claim reserved. Only for the same request, with a
//!    token left, before the local deadline, and within 10 ms of the last confirmation by the store. After an eviction a
//!    store grants nothing for the same 10 ms, so a token that is handed over is never older than a token of the next grant.
//! 2. *Through the store*, in one call: the release names a new claim of the first waiter as its **successor**.
//! 3. *Back to the store*, for any client.
//!
//! A holder that **downgrades** its write lock goes on holding, as a reader. From the request on, its claim is not handed
//! over in memory, because the store may count it as a read claim. After the store's confirmation the queue counts it as one, and
//! the poller asks for the first waiter if that is a reader. Waiters behind a waiting writer wait on.
//!
//! The **handover policy** decides how often 1 and 2 may follow each other before other clients have a turn: each local
//! waiter gets one turn while others are known to wait, or up to four within 250 µs; a client on a network pauses for 5 ms after it has kept a key for a
//! second; where the store cannot report waiters, others go first for 10 ms after every fourth claim. On a distant store the
//! client that had the last turn asks last after a wake-up, so that the turns of several clients are not a lottery.
//!
//! A **fair** waiter does not wait here but in the store, with a claim and a poller of its own. The queue has an entry
//! for this waiter, to offer it the grant.
//!
//! A caller may **leave** at any moment. What it had is given up: an offer goes to the next waiter, a call in flight is
//! adopted by a task, which releases the claim that the call may have placed.
//!
//! # How it is built
//!
//! [`KeyQueue`](state::KeyQueue) is a state machine: an [event](state::Event) and the time go in, a reply and
//! [effects](effects::Effects) come out. It reads no clock, starts no task and calls no store. The events stand where they
//! come from: [`callers`], [`holders`], the pollers' in [`polls`], and the timer's in [`linger`].
//! [`SharedQueue::apply`] locks it, reads the clock, applies one event, unlocks it, and only then wakes callers, starts the
//! poller and sends releases.
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
//! - **Q1** Of the callers that would wait here for a mode that excludes others, at most one asks the store: by its own
//!   call, by the poller, or by a release with a successor.
//! - **Q2** The holds in the queue, as far as their local deadlines have not passed, admit each other.
//! - **Q3** Every grant of the store is held, offered, or released: none is dropped.
//! - **Q4** A grant that is handed over in memory has a greater token than every conflicting grant that a caller got before it.
//! - **Q5** A waiter that can be served is never forgotten: while a local waiter waits, a poller runs, or the queue is
//!   closed.
//! - **Q6** A waiter gets a grant only of a request with the same options.
//! - **Q7** When the last caller has left and the last call has ended, no state of former waiters is left.
//! - **Q8** No lock is held while a waker runs or a store is called.

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
pub(crate) use policy::PolicyLimits;
pub(crate) use registry::Registry;
pub(crate) use shared::SharedQueue;
pub(crate) use state::Rules;
pub(crate) use waiter::WaiterId;
