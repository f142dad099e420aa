//! Batches: while many calls are in flight, the claims of many callers travel in one call of `redisson_batch.lua`.
//!
//! Callers put entries into a queue. Sender tasks, as many as [`ConcurrencyLimit`] allows, take up to 64 entries each
//! and send them as one call. No timer is involved: a batch holds what came while the senders were busy.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use redis::Value;
use tenure_backend::{BackendError, Claim, ClaimRef, Clock, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};

use crate::claims::arguments::{write_client, write_record};
use crate::claims::names::{COUNTER, Owner};
use crate::claims::refusal::lacks_key_permission;
use crate::claims::reply::{integer, list};
use crate::claims::script::{BATCH, Command, Dialect};
use crate::claims::slot::client_record_at;
use crate::claims::table::ClientRecord;
use crate::connection::concurrency::ConcurrencyLimit;
use crate::connection::wire::Wire;
use crate::error;
use crate::profile::{grants, lease_ms};

/// The most claims in one batch. The server runs a full batch for half a millisecond, and serves no other client
/// meanwhile.
const MAX_BATCH: usize = 64;

/// One caller's request in a batch.
pub(crate) enum BatchEntry {
    /// Place an unfair claim.
    Acquire {
        claim: Arc<Claim>,
        not_after: Instant,
        /// The client's record, if the call shall write it.
        client: Option<ClientRecord>,
    },
    /// Release a holder, without eviction or successor. No request of the claim may be in flight. If `with_record`, a
    /// renewal may have written a record of the claim, which the release deletes.
    Release { claim: ClaimRef, with_record: bool },
}

/// The script's reply for one entry.
#[derive(Clone, Copy)]
pub(crate) enum BatchReply {
    /// Nothing was done. The caller sends its request in a call of its own.
    NotDone,
    /// Nothing was done, because the `not_after` of this entry, or of another one in the batch, has passed. Redis has
    /// no trace of the claim.
    TooLate,
    /// Another claim holds the key. The number says after how many milliseconds to poll again.
    Busy(u64),
    /// After a release: 1 + the number of subscribers that received its wake-up. After a grant: the first token.
    Done(u64),
}

impl BatchReply {
    fn decode(code: &Value) -> Option<Self> {
        let Value::Int(code) = code else { return None };
        Some(match *code {
            0 => BatchReply::NotDone,
            -1 => BatchReply::TooLate,
            code @ 1.. => BatchReply::Done(code.unsigned_abs()),
            code => BatchReply::Busy(code.abs_diff(-2)),
        })
    }
}

/// An entry in the queue. Its caller waits for `reply`. If the caller has gone, the entry is not sent.
struct Queued {
    entry: BatchEntry,
    reply: oneshot::Sender<Result<BatchReply, BackendError>>,
}

/// Takes entries from callers and sends them in batches.
pub(crate) struct Batcher(UnboundedSender<Queued>);

impl Batcher {
    /// Starts the sender tasks, which end with the session. No caller sends a batch itself, because it may stop
    /// polling.
    pub(crate) fn new(wire: &Weak<Wire>, clock: &Arc<dyn Clock>, limit: ConcurrencyLimit) -> Self {
        let (sender, receiver) = unbounded_channel();
        let entries = Mutex::new(receiver);
        let queue = Arc::new(Queue { entries, limit });
        for number in 0..queue.limit.calls() {
            tokio::spawn(send_batches(number, queue.clone(), wire.clone(), clock.clone()));
        }
        Batcher(sender)
    }

    /// Queues an entry and waits for its reply.
    ///
    /// # Cancel safety
    /// If the caller drops the future before its batch is sent, the entry is removed from the batch; a batch that was
    /// sent takes effect.
    pub(crate) async fn call(&self, entry: BatchEntry) -> Result<BatchReply, BackendError> {
        let (reply, received) = oneshot::channel();
        // If the sender tasks have ended with their runtime, this drops `reply`, which ends the wait below.
        let _ = self.0.send(Queued { entry, reply });
        received.await.unwrap_or_else(|_| Err(error::runtime_ended()))
    }
}

struct Queue {
    entries: Mutex<UnboundedReceiver<Queued>>,
    limit: ConcurrencyLimit,
}

impl Queue {
    /// Takes the next batch for the sender task `number`. Returns an empty batch if the task shall end: the session was
    /// dropped, or a shorter round trip was seen, so that fewer tasks suffice.
    async fn next(&self, number: usize) -> Vec<Queued> {
        let mut batch = Vec::new();
        let mut entries = self.entries.lock().await;
        if number < self.limit.calls() {
            entries.recv_many(&mut batch, MAX_BATCH).await;
        }
        batch
    }
}

/// Sends one batch after the other. Entries that come while all sender tasks wait for replies travel in the next batch.
async fn send_batches(number: usize, queue: Arc<Queue>, wire: Weak<Wire>, clock: Arc<dyn Clock>) {
    loop {
        let batch = queue.next(number).await;
        if batch.is_empty() {
            return;
        }
        // The connection is gone only if no caller waits: each waiting caller keeps the session, and so the
        // connection.
        let Some(wire) = wire.upgrade() else { return };
        // Splits the batch, because one call serves only one client, and in a cluster only one slot.
        let mut calls: BTreeMap<_, Vec<Queued>> = BTreeMap::new();
        for queued in batch.into_iter().filter(|queued| !queued.reply.is_closed()) {
            let record = client_record_at(queued.entry.at(), wire.dialect != Dialect::Alone);
            calls.entry(record).or_default().push(queued);
        }
        let calls = calls.into_values();
        join_all(calls.map(|call| send_and_answer(call, &wire, &*clock, &queue.limit))).await;
    }
}

/// Sends a batch in one call, and passes each reply to its caller.
async fn send_and_answer(mut batch: Vec<Queued>, wire: &Wire, clock: &dyn Clock, limit: &ConcurrencyLimit) {
    batch.sort_by_key(|queued| queued.entry.rank());
    let sent = clock.now();
    let mut replies = send(&batch, wire, clock).await.map(Vec::into_iter);
    if replies.is_ok() {
        limit.observe(clock.now() - sent);
    }
    for Queued { reply, .. } in batch {
        let result = match &mut replies {
            Ok(replies) => replies.next().ok_or_else(error::unexpected_reply),
            // One key without permission made the server refuse the batch. Each caller now sends its claim alone.
            Err(error) if lacks_key_permission(error) => Ok(BatchReply::NotDone),
            Err(error) => Err(error.clone()),
        };
        let _ = reply.send(result);
    }
}

/// Sends a batch, which must be sorted by `rank`. Returns a reply for each entry, in the same order.
async fn send(batch: &[Queued], wire: &Wire, clock: &dyn Clock) -> Result<Vec<BatchReply>, BackendError> {
    let reply = wire.call_uncounted(encode(batch, wire)).await?;
    let [time, codes @ ..] = list(&reply).ok_or_else(error::unexpected_reply)? else {
        return Err(error::unexpected_reply());
    };
    wire.clock
        .learn(integer(time).ok_or_else(error::unexpected_reply)?, clock.now());
    let replies = codes.iter().map(BatchReply::decode);
    replies.collect::<Option<_>>().ok_or_else(error::unexpected_reply)
}

fn encode(batch: &[Queued], wire: &Wire) -> Command {
    let with_record = batch.partition_point(|queued| queued.entry.rank() < 1);
    let releases = batch.partition_point(|queued| queued.entry.rank() < 2);
    let placements = || {
        batch[releases..]
            .iter()
            .filter_map(|queued| queued.entry.placement())
    };
    let tokens: u64 = placements().map(|(claim, _)| grants(claim)).sum();
    let first_not_after = placements().map(|(_, not_after)| not_after).min();
    let shared = if_all_equal(placements().map(|(claim, _)| (lease_ms(claim.lease), grants(claim))));
    let mut command = BATCH.command(3 + batch.len(), 8 + 3 * batch.len(), 160 * (1 + batch.len()));
    command.arg(COUNTER);
    if let Some(first) = batch.first() {
        write_client(&mut command, first.entry.at().id.client());
    }
    for Queued { entry, .. } in batch {
        command.arg(entry.at().key.as_str());
    }
    command
        .arg(releases)
        .arg(with_record)
        .arg(tokens)
        .arg(first_not_after.map_or(0, |not_after| wire.clock.at(not_after)));
    let mut records = batch.iter().filter_map(|queued| match &queued.entry {
        BatchEntry::Acquire { client, .. } => client.as_ref(),
        BatchEntry::Release { .. } => None,
    });
    match records.next() {
        Some(record) => write_record(&mut command, record),
        None => _ = command.arg("").arg(""),
    }
    match shared {
        Some((lease, grants)) => command.arg(lease).arg(grants),
        None => command.arg("").arg(""),
    };
    for Queued { entry, .. } in batch {
        command.arg(Owner::of(entry.at().id).as_bytes());
    }
    if shared.is_none() {
        for (claim, _) in placements() {
            command.arg(lease_ms(claim.lease)).arg(grants(claim));
        }
    }
    command
}

/// Returns the common value of all items; `None` if they differ or there are none.
fn if_all_equal<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|other| other == first).then_some(first)
}

impl BatchEntry {
    fn at(&self) -> &ClaimRef {
        match self {
            BatchEntry::Acquire { claim, .. } => &claim.at,
            BatchEntry::Release { claim, .. } => claim,
        }
    }

    /// The order in a batch: releases with a record, other releases, placements. So a claim can take a key that is freed
    /// in the same batch.
    fn rank(&self) -> u8 {
        match self {
            BatchEntry::Release { with_record, .. } => u8::from(!with_record),
            BatchEntry::Acquire { .. } => 2,
        }
    }

    /// The claim to place and its time limit; `None` for a release.
    fn placement(&self) -> Option<(&Claim, Instant)> {
        match self {
            BatchEntry::Acquire { claim, not_after, .. } => Some((claim, *not_after)),
            BatchEntry::Release { .. } => None,
        }
    }
}
