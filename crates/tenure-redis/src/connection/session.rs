//! One connection: limits how many calls with a single claim are in flight, and batches claims under load.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tenure_backend::{BackendError, Instant};
use tokio::sync::Semaphore;

use crate::claims::script::Command;
use crate::connection::batch::{BatchEntry, BatchReply, Batcher};
use crate::connection::concurrency::ConcurrencyLimit;
use crate::connection::dial::Dialer;
use crate::connection::wire::Wire;
use crate::error;

/// The most calls with a single claim that are in flight at once on a connection; further ones queue in this process.
///
/// Renewals are not limited. However many tasks lock at once, only this many of their calls, and the batches (see
/// `concurrency.rs`), can be ahead of a renewal, so held claims are renewed in time.
const MAX_SINGLE_CALLS: usize = 256;

/// A connection with its batcher. It lives until the connection breaks, or all its users have dropped it.
pub(crate) struct Session {
    pub(crate) wire: Arc<Wire>,
    /// Claims are batched while at least this many calls are in flight.
    batch_from: usize,
    batcher: Batcher,
    single_calls: Semaphore,
}

impl Session {
    pub(crate) async fn open(dialer: &Dialer) -> Result<Arc<Self>, BackendError> {
        let config = &dialer.config;
        let wire = Wire::open(dialer).await?;
        let limit = ConcurrencyLimit::new(wire.round_trip, config.concurrent_batches);
        let batcher = Batcher::new(&Arc::downgrade(&wire), &config.clock, limit);
        Ok(Arc::new(Session {
            wire,
            batch_from: if config.redisson_fencing {
                usize::MAX
            } else {
                config.batch_from
            },
            batcher,
            single_calls: Semaphore::new(MAX_SINGLE_CALLS),
        }))
    }

    /// Returns whether enough calls are in flight that further claims are batched.
    pub(crate) fn is_busy(&self) -> bool {
        self.wire.calls_in_flight() >= self.batch_from
    }

    /// Returns whether the server may have forgotten held claims in a restart, so that it must place no others.
    pub(crate) fn is_recovering(&self, now: Instant) -> bool {
        self.recovers_for(now).is_some()
    }

    /// Time for which the server must still place no claim; `None` if it may place claims.
    pub(crate) fn recovers_for(&self, now: Instant) -> Option<Duration> {
        let until = self.wire.recovers_until.filter(|until| now < *until)?;
        Some(until - now)
    }

    /// Acquires or releases a claim in a batch with others.
    pub(crate) async fn call_batched(&self, entry: BatchEntry) -> Result<BatchReply, BackendError> {
        let _counted = self.wire.count_call();
        self.batcher.call(entry).await
    }

    /// Calls a script for a single claim, once fewer than [`MAX_SINGLE_CALLS`] are in flight.
    ///
    /// # Cancel safety
    /// Sends nothing if it is dropped while it waits for earlier calls to end.
    pub(crate) async fn call_limited(&self, command: Command) -> Result<Value, BackendError> {
        let _permit = self
            .single_calls
            .acquire()
            .await
            .map_err(|_| error::runtime_ended())?;
        // Boxed: this future takes 1.5 kB, which batched callers would carry too.
        Box::pin(self.wire.call(command)).await
    }
}
