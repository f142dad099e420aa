//! This client's knowledge of its own claims: which were granted, which have ended, and which have a request that may
//! still be in flight. With this knowledge, most releases need not leave a record in Redis that the claim has ended.
//! `redisson_records.lua` describes the records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, ClaimRef, ClientId, Effect, Fairness, Grant, Instant, Kind,
    LockKey, RenewRequest, ServerClock, TokenRange, Tombstones,
};

use self::entries::Entries;
use crate::claims::slot::client_record_at;

mod entries;

/// Time for which Redis keeps the record that a claim has ended: 2 s longer than a request can be in flight. The record
/// that a holder was evicted is kept for this time after the end of the holder's lease.
pub(crate) const RECORD_TTL: Duration = Duration::from_secs(12);

/// Added to the time to live of a client's record in Redis, so that few placements have to extend the record.
const CLIENT_MARGIN: Duration = Duration::from_secs(30);

/// With fewer entries than this, the table does not sweep expired ones.
const MIN_SWEEP: usize = 64;

/// The claims of this store's clients that may be in Redis or have a request in flight.
#[derive(Default)]
pub(crate) struct ClaimTable {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    claims: FxHashMap<ClientId, ClaimsOfClient>,
    ended: Tombstones,
    /// What the table knows about each client's record in Redis. The keys are made by [`client_record_at`].
    records: HashMap<(ClientId, u16), StoredClient>,
    /// The servers form a cluster.
    in_cluster: bool,
}

/// The claims of one client, by their numbers.
#[derive(Default)]
struct ClaimsOfClient {
    /// The label of the client's claims that have none of their own: that of the first of them.
    label: Arc<str>,
    entries: Entries<Entry>,
    /// The next sweep comes when the client has this many entries, but at least `MIN_SWEEP`.
    sweep_at: usize,
}

/// A claim that may be in Redis or have a request in flight. Every held lock has one, so it is kept small.
struct Entry {
    /// The label, if it is not the one in [`ClaimsOfClient`]. Boxed, because few claims have one.
    label: Option<Box<Arc<str>>>,
    kind: Kind,
    /// The tokens, if the claim was granted and not released.
    granted: Option<TokenRange>,
    /// Of a granted claim: lower bound for the end of the lease, in microseconds of the server's clock.
    ends: u64,
    /// Of a granted claim: a renewal may have written a record of it in Redis.
    has_record: bool,
    /// The claim waits in the fair queue in Redis.
    waits_in_store: bool,
    /// A release is in progress or may have taken effect. Further calls that acquire the claim return `Ended`.
    releasing: bool,
    /// Number of calls that place or poll the claim and wait for a reply.
    in_flight: u32,
    /// Latest time at which a request that was given up without a reply may arrive; [`Instant::ORIGIN`] if none was.
    may_arrive_until: Instant,
    /// Earliest time at which a sweep may remove the entry.
    until: Instant,
}

/// Time (µs) by which two estimates of the same end of a lease may differ: a server counts in milliseconds, and its replies
/// take more or less time.
const NOISE: u64 = 100_000;

/// What the table knows of a claim that is to be renewed.
pub(crate) struct Renewable {
    pub(crate) kind: Kind,
    /// The claim's tokens and label, for the record that the renewal shall write. `None` if the claim is not known as
    /// granted, or is being released.
    pub(crate) record: Option<(TokenRange, Arc<str>)>,
}

/// What the table knows about a client's record in Redis.
struct StoredClient {
    /// The label of the client's claims; empty once two claims had different labels.
    label: Arc<str>,
    until: Instant,
    wire: u64,
}

/// A client's record in Redis, for a script to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientRecord {
    pub(crate) ttl: Duration,
    pub(crate) label: Arc<str>,
}

/// Result of looking up a claim that a caller wants to place or poll.
pub(crate) enum Lookup<'a> {
    Ended,
    /// The claim was granted and not released.
    Granted(TokenRange),
    /// The table cannot answer: ask the server.
    Ask(Placement<'a>),
}

/// A call that places or polls a claim. If this value is dropped without a reply, or the call fails with an unknown
/// effect, the table notes that the request may be in flight.
pub(crate) struct Placement<'a> {
    table: &'a ClaimTable,
    pub(crate) claim: &'a Arc<Claim>,
    pub(crate) not_after: Instant,
    /// The client's record, if this placement shall write it.
    pub(crate) client: Option<ClientRecord>,
    answered: bool,
}

/// Tells the release script whether requests of the claim may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndState {
    /// No request of the claim can be in flight.
    Settled,
    /// No request can be in flight, and a renewal may have written a record.
    SettledWithRecord,
    /// A request may be in flight.
    MayBeInFlight,
    /// Not known: the claim is another program's, or the release is an eviction, or frees a foreign holder or all.
    Unknown,
}

impl ClaimTable {
    /// The table of a client of a cluster, for all its nodes: claims move with their slots.
    pub(crate) fn of_cluster() -> Self {
        let table = ClaimTable::default();
        table.state.lock().in_cluster = true;
        table
    }

    /// Notes a client whose claim is not sent to the server, which places none at present.
    pub(crate) fn not_sent(&self, claim: &ClaimRef) {
        self.state.lock().claims.entry(claim.id.client()).or_default();
    }

    /// Looks a claim up before it is placed or polled on the connection with the number `wire`.
    pub(crate) fn begin_placement<'a>(
        &'a self,
        claim: &'a Arc<Claim>,
        now: Instant,
        not_after: Instant,
        wire: u64,
    ) -> Lookup<'a> {
        let id = claim.at.id;
        let mut state = self.state.lock();
        if state.ended.contains(id) {
            return Lookup::Ended;
        }
        // A request that is given up may still arrive, and place the claim for its lease.
        let until = not_after.max(now) + claim.lease + RECORD_TTL;
        state.sweep(id.client(), now);
        let claims = state.claims.entry(id.client()).or_default();
        if claims.entries.len() == 0 {
            claims.label = claim.label.clone();
        }
        let has_own_label = claim.label != claims.label;
        let entry = claims.entries.get_or_insert_with(id.number(), || Entry {
            label: has_own_label.then(|| Box::new(claim.label.clone())),
            kind: claim.mode.kind(),
            granted: None,
            ends: 0,
            has_record: false,
            waits_in_store: false,
            releasing: false,
            in_flight: 0,
            may_arrive_until: Instant::ORIGIN,
            until,
        });
        if entry.releasing {
            return Lookup::Ended;
        }
        // The known tokens are final, unless another request may be in flight, to which Redis may grant other tokens.
        if let (Some(run), false) = (entry.granted, entry.may_be_in_flight(now)) {
            return Lookup::Granted(run);
        }
        entry.in_flight += 1;
        entry.until = entry.until.max(until);
        Lookup::Ask(Placement {
            table: self,
            claim,
            not_after,
            client: state.client_record(claim, now, wire),
            answered: false,
        })
    }

    /// The kind of lock that a claim belongs to; `None` for a claim that this client does not know.
    pub(crate) fn kind(&self, id: ClaimId) -> Option<Kind> {
        let state = self.state.lock();
        state.entry(id).map(|entry| entry.kind)
    }

    /// Marks a claim as being released, so that it is not placed again. If this client knows the claim, also returns
    /// its kind.
    pub(crate) fn begin_release(&self, id: ClaimId, now: Instant) -> (EndState, Option<Kind>) {
        let mut state = self.state.lock();
        let Some(entry) = state.entry_mut(id) else {
            // A claim of ours has an entry as long as it may be in Redis, or a request of it in flight. A request that
            // waits for the connection must not be sent any more.
            if state.claims.contains_key(&id.client()) {
                state.ended.insert(id, now);
            }
            let end = match state.ended.contains(id) {
                true => EndState::Settled,
                false => EndState::Unknown,
            };
            return (end, None);
        };
        entry.releasing = true;
        let end = if entry.may_be_in_flight(now) {
            EndState::MayBeInFlight
        } else if entry.granted.is_some() && entry.has_record {
            EndState::SettledWithRecord
        } else {
            EndState::Settled
        };
        (end, Some(entry.kind))
    }

    /// Records that the store has confirmed a release.
    pub(crate) fn confirm_end(&self, id: ClaimId, now: Instant) {
        let mut state = self.state.lock();
        state.remove(id);
        state.ended.insert(id, now);
    }

    /// Undoes `begin_release`, after the store refused the release without effect.
    pub(crate) fn cancel_release(&self, id: ClaimId) {
        if let Some(entry) = self.state.lock().entry_mut(id) {
            entry.releasing = false;
        }
    }

    /// Records that the store no longer has a claim. Returns whether the claim was granted and its lease may have ended
    /// when the server's clock showed `shown`.
    pub(crate) fn mark_lost(&self, id: ClaimId, now: Instant, shown: u64) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.entry_mut(id) else {
            return false;
        };
        if entry.granted.take().is_none() {
            return false;
        }
        let ends = entry.ends;
        // The entry stays if a request may be in flight, because the release must tell the script so.
        if !entry.may_be_in_flight(now) {
            state.remove(id);
        }
        state.ended.insert(id, now);
        ends <= shown
    }

    /// Looks up claims that are to be renewed; `None` for a claim that this client does not know. The table then counts
    /// each record that is returned as written. It keeps each claim until the lease that the renewal may set has ended.
    ///
    /// `make` gets the number of each request in the batch, the request, and what the table knows.
    pub(crate) fn begin_renewals<'a, T>(
        &self,
        batch: &'a [RenewRequest],
        now: Instant,
        make: impl Fn(usize, &'a RenewRequest, Option<Renewable>) -> T,
    ) -> Vec<T> {
        let mut state = self.state.lock();
        let mut look_up = |renewal: &RenewRequest| {
            let id = renewal.claim.id;
            let ClaimsOfClient { entries, label, .. } = state.claims.get_mut(&id.client())?;
            let entry = entries.get_mut(id.number())?;
            let run = entry.granted.filter(|_| !entry.releasing);
            entry.has_record |= run.is_some();
            // It is sent within a third of the lease.
            let lease = renewal.lease + renewal.lease / 3;
            entry.until = entry.until.max(now + lease + RECORD_TTL);
            let label = entry.label.as_deref().unwrap_or(label);
            let record = run.map(|run| (renewal.raise.unwrap_or(run), label.clone()));
            Some(Renewable {
                kind: entry.kind,
                record,
            })
        };
        let look_up = |(number, renewal)| make(number, renewal, look_up(renewal));
        batch.iter().enumerate().map(look_up).collect()
    }

    /// Records renewals: each lease ends no earlier than the given number of microseconds on the server's clock.
    /// Returns the keys of holders whose leases became shorter by more than [`NOISE`].
    pub(crate) fn mark_renewed<'a>(
        &self,
        renewals: impl Iterator<Item = (&'a RenewRequest, u64)>,
    ) -> Vec<&'a LockKey> {
        let mut state = self.state.lock();
        let mut shortened = Vec::new();
        for (renewal, ends) in renewals {
            let entry = state.entry_mut(renewal.claim.id);
            if let Some(entry) = entry
                && let Some(run) = entry.granted
            {
                if ends + NOISE < entry.ends {
                    shortened.push(&renewal.claim.key);
                }
                entry.ends = ends;
                entry.granted = Some(renewal.raise.unwrap_or(run));
            }
        }
        shortened
    }

    /// The label to write into the record of a claim's client.
    pub(crate) fn client_label(&self, claim: &ClaimRef) -> Arc<str> {
        let state = self.state.lock();
        let client = state.records.get(&client_record_at(claim, state.in_cluster));
        client.map_or_else(|| "".into(), |client| client.label.clone())
    }
}

impl Entry {
    /// Returns whether a request that places or polls the claim may still arrive at the server.
    fn may_be_in_flight(&self, now: Instant) -> bool {
        self.in_flight > 0 || now < self.may_arrive_until
    }
}

impl State {
    /// Returns the client's record if the call that places this claim must write it: the record in Redis may expire too
    /// early for this claim, has a label that this claim does not share, or was written on another connection.
    fn client_record(&mut self, claim: &Claim, now: Instant, wire: u64) -> Option<ClientRecord> {
        let until = now + claim.lease + RECORD_TTL;
        let at = client_record_at(&claim.at, self.in_cluster);
        let stored = self.records.entry(at).or_insert_with(|| StoredClient {
            label: claim.label.clone(),
            until: now,
            wire,
        });
        if stored.label != claim.label && !stored.label.is_empty() {
            stored.label = "".into();
        } else if stored.wire == wire && until <= stored.until {
            return None;
        }
        let ttl = claim.lease + RECORD_TTL + CLIENT_MARGIN;
        (stored.until, stored.wire) = (stored.until.max(now + ttl), wire);
        Some(ClientRecord {
            ttl,
            label: stored.label.clone(),
        })
    }

    fn entry(&self, id: ClaimId) -> Option<&Entry> {
        self.claims.get(&id.client())?.entries.get(id.number())
    }

    fn entry_mut(&mut self, id: ClaimId) -> Option<&mut Entry> {
        let claims = self.claims.get_mut(&id.client())?;
        claims.entries.get_mut(id.number())
    }

    fn remove(&mut self, id: ClaimId) {
        if let Some(claims) = self.claims.get_mut(&id.client()) {
            claims.entries.remove(id.number());
        }
    }

    fn sweep(&mut self, client: ClientId, now: Instant) {
        let Some(claims) = self.claims.get_mut(&client) else {
            return;
        };
        if claims.entries.len() < claims.sweep_at.max(MIN_SWEEP) {
            return;
        }
        claims.entries.retain(|number, entry| {
            let stays = entry.in_flight > 0 || now < entry.until;
            if !stays && entry.releasing {
                self.ended.insert(ClaimId::new(client, number), now);
            }
            stays
        });
        claims.sweep_at = claims.entries.len() * 2;
        self.records.retain(|_, client| now < client.until);
    }
}

impl Placement<'_> {
    /// Records the reply to the call, or its error.
    pub(crate) fn answered(mut self, reply: Result<&AcquireReply, &BackendError>, clock: &ServerClock) {
        match reply {
            Ok(AcquireReply::Granted(grant)) => self.granted(grant, clock.at(grant.held_from + grant.lease)),
            Ok(AcquireReply::Waiting { .. }) => self.refused(Some(true)),
            Ok(_) => self.refused(Some(false)),
            // The call had no effect: a claim that was in the store is still there.
            Err(error) if error.effect() == Effect::None => self.refused(None),
            // The effect is unknown: `drop` notes that the request may be in flight.
            Err(_) => {}
        }
    }

    /// Notes that this call may not have written the client's record, so that the next call writes it.
    fn client_not_stored(&self) {
        if self.client.is_some() {
            let mut state = self.table.state.lock();
            let at = client_record_at(&self.claim.at, state.in_cluster);
            if let Some(stored) = state.records.get_mut(&at) {
                stored.until = Instant::ORIGIN;
            }
        }
    }

    fn granted(&mut self, grant: &Grant, ends: u64) {
        self.answered = true;
        let mut state = self.table.state.lock();
        let Some(entry) = state.entry_mut(self.claim.at.id) else {
            return;
        };
        entry.in_flight -= 1;
        entry.until = entry.until.max(grant.held_from + grant.lease + RECORD_TTL);
        // If two requests were in flight, the higher tokens are valid: they were drawn later.
        entry.has_record &= entry.granted.is_some();
        entry.granted = match (entry.granted, grant.tokens) {
            (Some(before), Some(run)) if before.first() > run.first() => Some(before),
            (_, run) => run,
        };
        entry.ends = ends;
    }

    /// Records that the call granted nothing. `waits` tells whether the claim waits; `None` if the call failed without
    /// effect. Only a fair claim waits in the store.
    fn refused(&mut self, waits: Option<bool>) {
        self.answered = true;
        self.client_not_stored();
        let mut state = self.table.state.lock();
        let Some(entry) = state.entry_mut(self.claim.at.id) else {
            return;
        };
        entry.in_flight -= 1;
        if let Some(waits) = waits {
            entry.waits_in_store = waits && self.claim.fairness == Fairness::Fifo;
        }
        let stays = entry.waits_in_store || waits.is_none() && entry.granted.is_some();
        let was_given_up = entry.may_arrive_until != Instant::ORIGIN;
        if !stays && entry.in_flight == 0 && !was_given_up && !entry.releasing {
            state.remove(self.claim.at.id);
        }
    }
}

impl Drop for Placement<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.client_not_stored();
        if let Some(entry) = self.table.state.lock().entry_mut(self.claim.at.id) {
            entry.in_flight -= 1;
            entry.may_arrive_until = entry.may_arrive_until.max(self.not_after + RECORD_TTL);
        }
    }
}

#[cfg(test)]
mod tests;
