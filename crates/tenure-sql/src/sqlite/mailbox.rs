//! The queue of requests from callers to the thread that serves a file, and the sleep of that thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_backend::{BackendError, Claim, Effect, Fault, WakeSignal};

use super::notification::{NotificationListener, ThreadWaker};
use super::request::{Request, Write};

/// Time for which the file's thread polls for the next request before it sleeps, if the previous request came as
/// quickly. Waking a thread takes longer than a release.
pub(super) const WORKER_SPIN: Duration = Duration::from_micros(150);

/// Time for which a caller polls for its reply before it sleeps, if the previous reply came as quickly. Enough
/// for a request that syncs the disk.
pub(super) const CALLER_SPIN: Duration = Duration::from_micros(450);

/// The queue of requests to the thread that serves a file.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    /// True if the file's thread sleeps or is about to, so that the next request must wake it.
    asleep: AtomicBool,
    /// True if a single caller sends one request after the other, and so should poll for its reply.
    caller_may_spin: AtomicBool,
    waker: ThreadWaker,
    /// Maximum length of each queue: of renewals, and of other requests.
    limit: usize,
}

#[derive(Debug)]
pub(super) struct Posted {
    /// Time at which the request was posted.
    pub(super) since: Instant,
    pub(super) request: Request,
}

impl Posted {
    fn now(request: Request) -> Self {
        Posted {
            since: Instant::now(),
            request,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Renewals. They are served first, so that a burst of other requests cannot make a lease expire.
    renewals: VecDeque<Posted>,
    requests: VecDeque<Posted>,
    closed: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.requests.is_empty()
    }

    fn queue(&mut self, request: &Request) -> &mut VecDeque<Posted> {
        match request {
            Request::Write(Write::Renew(_)) => &mut self.renewals,
            _ => &mut self.requests,
        }
    }
}

impl Mailbox {
    pub(super) fn new(limit: usize) -> io::Result<Self> {
        Ok(Mailbox {
            state: Mutex::default(),
            asleep: AtomicBool::new(false),
            caller_may_spin: AtomicBool::new(false),
            waker: ThreadWaker::new()?,
            limit,
        })
    }

    /// Queues a request, or answers it with an error if the mailbox is closed or the queue is full. Renewals have
    /// their own queue.
    pub(super) fn post(&self, request: Request) {
        let refused = {
            let mut state = self.state.lock();
            if state.closed {
                Some((request, BackendError::closed()))
            } else {
                let queue = state.queue(&request);
                if queue.len() < self.limit {
                    queue.push_back(Posted::now(request));
                    None
                } else {
                    Some((request, queue_full()))
                }
            }
        };
        match refused {
            Some((request, error)) => request.fail(&error),
            None => self.wake(),
        }
    }

    /// Refuses further requests. The file's thread serves those in the queues and then ends.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wake();
    }

    /// Takes the next requests, renewals first. Stops once they have `limit` claims. If other requests than renewals
    /// wait, at least half of the limit is for them. Returns `None` once the mailbox is closed and empty.
    pub(super) fn take(&self, limit: usize) -> Option<VecDeque<Posted>> {
        let mut state = self.state.lock();
        if state.closed && state.is_empty() {
            return None;
        }
        let mut taken = VecDeque::new();
        let reserved = if state.requests.is_empty() { 0 } else { limit / 2 };
        let used = move_requests(&mut state.renewals, &mut taken, limit - reserved);
        move_requests(
            &mut state.requests,
            &mut taken,
            limit.saturating_sub(used).max(reserved),
        );
        Some(taken)
    }

    /// Posts a request to remove a subscriber whose wake-up stream was dropped.
    pub(super) fn unsubscribe(&self, claim: Arc<Claim>, signal: WakeSignal) {
        // Not counted against the limit: there is at most one such request for each wake-up stream.
        let mut state = self.state.lock();
        if !state.closed {
            state
                .requests
                .push_back(Posted::now(Request::Unsubscribe(claim, signal)));
            drop(state);
            self.wake();
        }
    }

    pub(super) fn set_caller_may_spin(&self, caller_may_spin: bool) {
        self.caller_may_spin.store(caller_may_spin, Ordering::Relaxed);
    }

    /// Time for which a caller polls for its reply before it sleeps. Zero if callers compete or replies take
    /// longer.
    pub(super) fn caller_spin(&self) -> Duration {
        if self.caller_may_spin.load(Ordering::Relaxed) {
            CALLER_SPIN
        } else {
            Duration::ZERO
        }
    }

    /// Polls for a request until the given time, without sleeping; yields the core between polls. Returns true if a
    /// request came or the mailbox was closed.
    pub(super) fn spin_until(&self, until: Instant) -> bool {
        while self.is_idle() {
            if until <= Instant::now() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Sleeps until a request is posted, another process notifies (if `listen` is set) or `time` is over; may return
    /// early.
    pub(super) fn sleep(&self, listener: &mut NotificationListener, listen: bool, time: Option<Duration>) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.is_idle() {
            listener.wait(&self.waker, listen, time);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.is_empty() && !state.closed
    }

    /// Wakes the file's thread if it sleeps.
    ///
    /// No wake-up is lost: the thread checks the queues after it sets `asleep`, and callers check `asleep` after they
    /// post.
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Moves requests from the front until they have at least `limit` claims, or none is left. Returns the number of
/// claims.
fn move_requests(from: &mut VecDeque<Posted>, to: &mut VecDeque<Posted>, limit: usize) -> usize {
    let mut used = 0;
    while let Some(next) = from.pop_front() {
        used += next.request.claims();
        to.push_back(next);
        if limit <= used {
            break;
        }
    }
    used
}

/// Closes the mailbox when the file's thread ends, even by a panic. Requests that are left get an error, except
/// `Close`, which succeeds.
#[derive(Debug)]
pub(super) struct CloseOnDrop(pub(super) Arc<Mailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.state.lock();
            state.closed = true;
            [
                std::mem::take(&mut state.renewals),
                std::mem::take(&mut state.requests),
            ]
        };
        for posted in left.into_iter().flatten() {
            posted.request.fail(&BackendError::closed());
        }
    }
}

fn queue_full() -> BackendError {
    BackendError::new(
        Fault::Unavailable,
        Effect::None,
        "more requests wait for the lock file than it takes at once: make fewer at a time, or try again",
    )
}
