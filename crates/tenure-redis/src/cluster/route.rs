//! The route of one call: to the node of the key's slot, and after the slot when it moves.
//!
//! While a slot moves, its keys are partly at the old node and partly at the new one. A call for a lock has several
//! keys, and a node that lacks one of them refuses it: the old one answers `TRYAGAIN`, or `ASK` if it lacks all, and
//! the new one would answer `TRYAGAIN`, even after `ASKING`. So the call waits until the slot has moved.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault, Instant, LockKey};
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::slot::slot_of;
use crate::cluster::nodes::RedisCluster;
use crate::error::{cause_of, no_acknowledgement};

/// Pause before a call is repeated because its slot moves. Each pause is twice the one before, up to `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(80);

/// The most `MOVED` that one call follows without a pause: nodes that name each other would keep it busy.
const MAX_MOVES: u32 = 3;

/// Why a node of a cluster refused a call.
pub(super) enum Redirect {
    /// Another node serves the slot: its address.
    Moved(String),
    /// The slot is being moved, so no node serves the call now.
    Moving,
    /// The node refused a write in another slot. It wrote that before the `WAIT` that answers the callers of many slots.
    OtherSlot,
}

/// Returns why a node refused a call in a slot; `None` if the error is no redirection.
pub(super) fn redirect(error: &BackendError, slot: u16) -> Option<Redirect> {
    let cause = cause_of(error);
    let mut words = cause.split(' ');
    let (code, of_slot) = (words.next()?, words.next());
    let is_other = || of_slot.and_then(|of_slot| of_slot.parse().ok()) != Some(slot);
    match (code, words.next()) {
        ("MOVED" | "ASK", Some(_)) if is_other() => Some(Redirect::OtherSlot),
        ("MOVED", Some(address)) => Some(Redirect::Moved(address.to_owned())),
        ("ASK" | "TRYAGAIN", _) => Some(Redirect::Moving),
        _ => None,
    }
}

/// A call's search for the node that serves its slot. It ends at `until`.
struct Route<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    until: Instant,
    moves: u32,
    pause: Duration,
}

impl RedisCluster {
    /// Calls the node of a key's slot. The call follows the slot until the time `until`, but no longer than
    /// `command_timeout`.
    pub(super) async fn call_routed<T, F>(
        &self,
        key: &LockKey,
        until: Instant,
        call: impl Fn(Arc<RedisStore>) -> F,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        self.dialer.check_process()?;
        let mut route = Route {
            cluster: self,
            slot: slot_of(key)?,
            until: until.min(self.now() + self.dialer.config.command_timeout),
            moves: 0,
            pause: FIRST_PAUSE,
        };
        loop {
            let node = route.node()?;
            match call(node.clone()).await {
                Err(error) => route.follow(error, &node).await?,
                reply => return reply,
            }
        }
    }
}

impl Route<'_> {
    /// The node to call next.
    fn node(&self) -> Result<Arc<RedisStore>, BackendError> {
        let node = self.cluster.nodes()?.of_slot(self.slot);
        node.ok_or_else(|| {
            self.cluster.dialer.slots_may_have_moved();
            not_served(self.slot, Effect::None, "no node of the cluster has it")
        })
    }

    /// Waits until the call is to be repeated. Fails if the node's error is the call's outcome, or time is up.
    async fn follow(&mut self, error: BackendError, node: &RedisStore) -> Result<(), BackendError> {
        match redirect(&error, self.slot) {
            None => return Err(self.outcome(error)),
            Some(Redirect::OtherSlot) => return Err(no_acknowledgement()),
            Some(Redirect::Moved(address)) => {
                self.cluster.note_move(self.slot, &address, node);
                self.moves += 1;
                if self.moves <= MAX_MOVES {
                    return Ok(());
                }
            }
            Some(Redirect::Moving) => {
                self.cluster.note_open(self.slot);
                self.cluster.dialer.slots_may_have_moved();
            }
        }
        if self.until <= self.cluster.now() + self.pause {
            return Err(not_served(self.slot, error.effect(), cause_of(&error)));
        }
        sleep(self.pause).await;
        self.pause = (2 * self.pause).min(LAST_PAUSE);
        Ok(())
    }

    /// The error of a call that is not repeated. If another node may serve the slot, also makes the client ask the
    /// cluster for its slots again.
    fn outcome(&self, error: BackendError) -> BackendError {
        let cause = cause_of(&error);
        // A script that was stopped at a key of another node reports this.
        let stopped = cause.contains("non local key");
        if stopped || cause.starts_with("CLUSTERDOWN") {
            self.cluster.dialer.slots_may_have_moved();
            return not_served(self.slot, error.effect(), cause);
        }
        if error.fault() == Fault::Unavailable {
            self.cluster.dialer.slots_may_have_moved();
        }
        error
    }
}

fn not_served(slot: u16, effect: Effect, cause: impl Into<String>) -> BackendError {
    let message = format!(
        "the cluster does not serve slot {slot} now, because it moves, or because its node is down: try again, or see \
         `CLUSTER INFO`"
    );
    BackendError::because(Fault::Unavailable, effect, message, cause.into())
}
