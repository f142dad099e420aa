//! The way from callers to the thread that serves a file: a bounded queue, and a signal the thread can sleep on.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_backend::{BackendError, Claim, Effect, Fault, WakeSignal};

use super::notification::{NotificationListener, ThreadWaker};
use crate::request::{Request, Write};

/// For how long the thread looks for the next request before it sleeps, if the last one came as soon: being woken
/// takes longer than a release.
pub(super) const WORKER_SPIN: Duration = Duration::from_micros(150);

/// For how long a caller looks for its answer before it sleeps, if the last one came as soon. It includes the disk.
pub(super) const CALLER_SPIN: Duration = Duration::from_micros(450);

/// Requests on their way to the thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    /// Whether the thread sleeps, or is about to, and has to be woken up.
    asleep: AtomicBool,
    /// Whether one caller comes again and again, as soon as it was answered, and is answered as soon.
    caller_may_spin: AtomicBool,
    waker: ThreadWaker,
    limit: usize,
}

/// A request, and since when it waits.
#[derive(Debug)]
pub(super) struct Posted {
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
    /// Served first: a lease must not end because many others ask.
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

    /// Takes a request in, or answers it at once if it cannot be served. The limit is for renewals and for all
    /// others, each by themselves.
    pub(crate) fn post(&self, request: Request) {
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

    /// Takes in no more. What is in the queue is served, then the thread ends.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake();
    }

    /// The next requests, renewals first, with no more than `limit` claims unless one request has more; `None` once
    /// it is closed and empty. Half of the room is kept for what is no renewal.
    pub(super) fn take(&self, limit: usize) -> Option<VecDeque<Posted>> {
        let mut state = self.state.lock();
        if state.closed && state.is_empty() {
            return None;
        }
        let mut taken = VecDeque::new();
        let kept = if state.requests.is_empty() { 0 } else { limit / 2 };
        let used = move_requests(&mut state.renewals, &mut taken, limit - kept);
        move_requests(
            &mut state.requests,
            &mut taken,
            limit.saturating_sub(used).max(kept),
        );
        Some(taken)
    }

    /// The claim's wake-ups by that signal were dropped.
    pub(crate) fn unsubscribe(&self, claim: Arc<Claim>, signal: WakeSignal) {
        // Not bounded by the limit: there is at most one for each stream that was handed out.
        let mut state = self.state.lock();
        if !state.closed {
            state
                .requests
                .push_back(Posted::now(Request::Unsubscribe(claim, signal)));
            drop(state);
            self.wake();
        }
    }

    /// The thread says whether one caller comes again and again, and is answered soon.
    pub(super) fn set_caller_may_spin(&self, caller_may_spin: bool) {
        self.caller_may_spin.store(caller_may_spin, Ordering::Relaxed);
    }

    /// For how long a caller stays awake: not at all where it would take the core from others, or in vain.
    pub(crate) fn caller_spin(&self) -> Duration {
        if self.caller_may_spin.load(Ordering::Relaxed) {
            CALLER_SPIN
        } else {
            Duration::ZERO
        }
    }

    /// Waits for a request without sleeping. Whether one came before that time.
    ///
    /// At every look it offers the core to whoever else could use it.
    pub(super) fn spin_until(&self, until: Instant) -> bool {
        while self.is_idle() {
            if until <= Instant::now() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Sleeps until a request or news comes in, or the time is over. Spurious wake-ups happen.
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

    /// The queue is looked at after `asleep` was set, and `asleep` after the queue was filled: whichever comes
    /// second sees the other.
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Moves requests until there is no room for more claims; the first one whatever it needs. The claims that it moved.
fn move_requests(from: &mut VecDeque<Posted>, to: &mut VecDeque<Posted>, room: usize) -> usize {
    let mut used = 0;
    while let Some(next) = from.pop_front() {
        used += next.request.claims();
        to.push_back(next);
        if room <= used {
            break;
        }
    }
    used
}

/// Answers whatever is left when the thread ends, however it ends.
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
