//! Leases, which claims share, and their keep-alives.
//!
//! A lease carries at most [`MAX_CLAIMS`] claims of one client, all of one lease time and each on another lock, because
//! Go's layout names a contender's key by its lease. A shared lease is never revoked: it ends when no claim is renewed.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, ClientId, Clock, Instant, LockKey};
use tenure_contenders::SharedAttempts;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::names;
use super::requests::put;
use crate::client::{
    Client, GRANT, KEEP_ALIVE, LeaseGrantRequest, LeaseId, LeaseReply, Replies, ResponseHeader,
};
use crate::error::{ended, unanswered};

/// The most claims on a lease. One transaction confirms them all (etcd's limit is 128 operations), and the end of a lease
/// ends no more.
const MAX_CLAIMS: usize = 100;

/// The longest wait for a keep-alive. A member may hang for seconds while the leader is paused; another one does not.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The most streams on which one round of keep-alives is tried.
const MAX_STREAMS: u32 = 4;

/// A lease of one client.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) key: String,
    pub(super) ttl: Duration,
    client: ClientId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    epoch: u64,
    locks: HashSet<LockKey>,
    /// Whether claims may be placed on the lease.
    is_open: bool,
    is_alive: bool,
}

/// The last confirmed keep-alive of a lease, or its grant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kept {
    /// When the request was sent: the lease lasts at least its length from then on, if a transaction that is sent after the
    /// reply has the same term.
    pub(super) at: Instant,
    term: u64,
}

impl Kept {
    /// Returns whether a transaction that was sent after the keep-alive's reply proves that the lease was prolonged. If
    /// another leader was elected in between, the reply may come from one that was already replaced.
    pub(super) fn is_proved_by(&self, header: &ResponseHeader) -> bool {
        header.raft_term == self.term
    }
}

impl Lease {
    pub(super) fn kept(&self) -> Kept {
        self.state.lock().kept
    }

    pub(super) fn is_alive(&self) -> bool {
        self.state.lock().is_alive
    }

    /// The lease's epoch, which its key's value says.
    pub(super) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    pub(super) fn set_epoch(&self, epoch: u64) {
        let mut state = self.state.lock();
        state.epoch = state.epoch.max(epoch);
    }

    /// Places no further claims on the lease.
    pub(super) fn retire(&self) {
        self.state.lock().is_open = false;
    }

    /// Records that the lease does not exist.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        (state.is_open, state.is_alive) = (false, false);
    }

    /// Ends the lease if its last confirmed keep-alive is a lease's length ago: then no claim on it counts as alive. Returns
    /// whether it has ended. etcd may still have the lease, because answers to keep-alives were lost; the client uses it no
    /// more, and does not keep it alive.
    pub(super) fn ends_unless_kept(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if now >= state.kept.at + self.ttl {
            (state.is_open, state.is_alive) = (false, false);
        }
        !state.is_alive
    }

    /// Allows another claim on the lock.
    pub(super) fn free(&self, key: &LockKey) {
        self.state.lock().locks.remove(key);
    }

    fn reserve(&self, client: ClientId, ttl: Duration, key: &LockKey) -> bool {
        let mut state = self.state.lock();
        let has_room = state.is_open && state.locks.len() < MAX_CLAIMS;
        (self.client, self.ttl) == (client, ttl) && has_room && state.locks.insert(key.clone())
    }

    fn answered(&self, reply: &LeaseReply, sent: Instant) {
        if reply.ttl <= 0 {
            return self.end();
        }
        let term = reply.header.raft_term;
        self.state.lock().kept = Kept { at: sent, term };
    }
}

/// A stream of keep-alives: its requests, and its replies in the same order.
type KeepAlives = (mpsc::UnboundedSender<LeaseId>, Replies<LeaseReply>);

/// The leases of a store.
pub(super) struct Leases {
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    /// Locked while a lease is created, so that claims that come meanwhile share it.
    pool: tokio::sync::Mutex<Vec<Arc<Lease>>>,
    creating: SharedAttempts,
    /// Locked during a round of keep-alives.
    stream: tokio::sync::Mutex<Option<KeepAlives>>,
    opening: SharedAttempts,
}

impl Leases {
    pub(super) fn new(client: Arc<Client>, clock: Arc<dyn Clock>) -> Self {
        Leases {
            client,
            clock,
            pool: tokio::sync::Mutex::default(),
            creating: SharedAttempts::default(),
            stream: tokio::sync::Mutex::default(),
            opening: SharedAttempts::default(),
        }
    }

    /// Reserves a place for a claim on a lease that was kept alive lately. Creates a lease if none has a place.
    pub(super) async fn reserve(
        &self,
        client: ClientId,
        ttl: Duration,
        key: &LockKey,
    ) -> Result<Arc<Lease>, BackendError> {
        loop {
            let attempt = self.creating.begin();
            let mut pool = self.pool.lock().await;
            let now = self.clock.now();
            pool.retain(|lease| {
                let state = lease.state.lock();
                let may_exist = now < state.kept.at + lease.ttl || !state.locks.is_empty();
                state.is_alive && may_exist
            });
            let lease = match pool.iter().find(|lease| lease.reserve(client, ttl, key)) {
                Some(lease) => lease.clone(),
                None => {
                    let lease = attempt.make(self.create(client, ttl)).await?;
                    lease.reserve(client, ttl, key);
                    pool.push(lease.clone());
                    lease
                }
            };
            drop(pool);
            match self.refresh(&lease).await {
                Ok(true) => return Ok(lease),
                Ok(false) => {}
                Err(error) => {
                    lease.free(key);
                    return Err(error);
                }
            }
        }
    }

    async fn create(&self, client: ClientId, ttl: Duration) -> Result<Arc<Lease>, BackendError> {
        let at = self.clock.now();
        let asked = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let granted = self.client.call(GRANT, LeaseGrantRequest { ttl: asked }).await?;
        let term = granted.header.raft_term;
        let lease = Lease {
            id: granted.id,
            key: names::lease_key(client, granted.id),
            ttl,
            client,
            state: Mutex::new(State {
                kept: Kept { at, term },
                epoch: 1,
                locks: HashSet::new(),
                is_open: true,
                is_alive: true,
            }),
        };
        let lease_key = put(&*lease.key, lease.epoch().to_string(), Some(lease.id));
        self.client.txn(Vec::new(), vec![lease_key], Vec::new()).await?;
        Ok(Arc::new(lease))
    }

    /// Prolongs a lease, unless its last keep-alive is recent enough for a new claim, or for the poll of one that waits. Returns
    /// whether the lease exists.
    pub(super) async fn refresh(&self, lease: &Arc<Lease>) -> Result<bool, BackendError> {
        if self.clock.now() - lease.kept().at >= lease.ttl / 3 {
            self.keep(std::slice::from_ref(lease)).await?;
        }
        Ok(lease.is_alive())
    }

    /// Prolongs leases, except those that were given up. Records those that do not exist.
    ///
    /// If a member does not answer in time, the others are asked on new streams. Replies on the old stream are not read: the
    /// new requests prolong the leases, too.
    pub(super) async fn keep(&self, leases: &[Arc<Lease>]) -> Result<(), BackendError> {
        let asked = self.clock.now();
        let attempt = self.opening.begin();
        let mut stream = self.stream.lock().await;
        // Another call may have prolonged them meanwhile.
        let is_due = |lease: &&Arc<Lease>| lease.is_alive() && lease.kept().at < asked;
        let mut waiting: VecDeque<_> = leases.iter().filter(is_due).collect();
        let mut tried = 0;
        while !waiting.is_empty() {
            let open = match stream.take() {
                Some(open) => open,
                None => attempt.make(self.client.stream(KEEP_ALIVE)).await?,
            };
            tried += 1;
            match self.keep_on(open, &mut waiting).await {
                Ok(open) => *stream = Some(open),
                Err(error) if tried == MAX_STREAMS || !error.is_transient() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Prolongs the leases in `waiting` on a stream, and takes out those that were answered. Returns the stream.
    async fn keep_on(
        &self,
        (requests, mut replies): KeepAlives,
        waiting: &mut VecDeque<&Arc<Lease>>,
    ) -> Result<KeepAlives, BackendError> {
        let sent = self.clock.now();
        for lease in &*waiting {
            // Fails if the stream has ended, which its replies say.
            let _ = requests.send(LeaseId { id: lease.id });
        }
        while let Some(lease) = waiting.front() {
            let limit = MAX_WAIT.min(lease.ttl / 6);
            let Ok(reply) = timeout(limit, replies.next()).await else {
                replies.leave();
                return Err(unanswered(limit));
            };
            let reply = reply?;
            if reply.id != lease.id {
                return Err(ended());
            }
            lease.answered(&reply, sent);
            waiting.pop_front();
        }
        Ok((requests, replies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_another_term_proves_nothing() {
        let kept = Kept {
            at: Instant::ORIGIN,
            term: 7,
        };
        for (raft_term, expected) in [(6, false), (7, true), (8, false)] {
            let header = ResponseHeader {
                raft_term,
                ..ResponseHeader::default()
            };
            assert_eq!(kept.is_proved_by(&header), expected);
        }
    }
}
