//! Acquiring: places the node of a claim, or looks which contenders are before it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Evidence, Fairness, Grant, HANDOVER_WINDOW, Instant, Mode,
};
use tenure_contenders::{Acquire, Contenders as _, Known, placed_but, tokens};

use super::contenders::{Contender, Standing, standing};
use super::evidence::LockEvidence;
use super::kinds::check_take;
use super::names::LEASES;
use super::placed::{Placed, Spot, Target};
use super::requests::{Found, Seen};
use super::store::Locks;
use crate::client::Mode as NodeMode;
use crate::config::Layout;

impl Acquire for Locks {
    async fn place(
        self: &Arc<Self>,
        claim: &Claim,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        check_take(claim.mode)?;
        let id = claim.at.id;
        let in_flight = match self.table.know(id) {
            Known::Unplaced { spot, is_in_flight } => {
                spot.filter(|spot| is_in_flight && spot.session.is_alive())
            }
            _ => None,
        };
        let spot = match in_flight {
            Some(spot) => {
                if let Some(found) = self.find(id, &spot).await? {
                    self.table.answered(id);
                    let placed = self.put(claim, spot, found, Instant::ORIGIN);
                    return self.poll(claim, placed).await;
                }
                spot
            }
            None => {
                self.table.answered(id);
                self.reserve(claim).await?
            }
        };
        if claim.fairness == Fairness::Unfair {
            let mut standing = self.look(claim, &spot, None, None).await?;
            if standing != Some(Standing::Granted) {
                // The server may not have seen a release that the caller knows of.
                spot.session.client.sync(&spot.folder).await?;
                standing = self.look(claim, &spot, None, None).await?;
            }
            if let Some(standing) = standing.filter(|standing| *standing != Standing::Granted) {
                self.table.unplace(id);
                return self.refused(claim, standing);
            }
        }
        let Some((placed, seen)) = self.create_node(claim, spot).await? else {
            self.table.unplace(id);
            return Ok(self.waiting(claim));
        };
        self.settle(claim, placed, seen, not_after).await
    }

    async fn poll(self: &Arc<Self>, claim: &Claim, placed: Placed) -> Result<AcquireReply, BackendError> {
        let standing = match placed.granted.is_some() || placed.has_permits() {
            true => Some(Standing::Granted),
            false => self.look(claim, &placed.spot, Some(&placed), None).await?,
        };
        let is_proved = self.now() - placed.proved_at < HANDOVER_WINDOW;
        self.conclude(claim, placed, standing, is_proved).await
    }
}

impl Locks {
    /// Creates the node of a claim, and reads the contenders with it. `None` if another claim has the node, in the layout
    /// `ephemeral`.
    async fn create_node(&self, claim: &Claim, spot: Spot) -> Result<Option<(Placed, Seen)>, BackendError> {
        if self.config.layout == Layout::Ephemeral {
            let placed = self.place_node(claim, spot).await?;
            return Ok(placed.map(|placed| (placed, Seen::default())));
        }
        let name = self.names.contender(claim.at.id, claim.mode);
        let path = format!("{}/{name}", spot.folder);
        let data = self.value(claim).write();
        let client = &spot.session.client;
        // One after the other on the connection, so the children are those after the create.
        let creating = self.create(client, &path, data.as_bytes(), NodeMode::EphemeralSequential);
        match join(creating, self.children(client, &spot.folder)).await {
            (Ok((created, sent)), seen) => {
                let found = Found {
                    nodes: vec![created.path],
                    czxid: created.czxid,
                };
                Ok(Some((
                    self.put(claim, spot, found, sent),
                    seen.unwrap_or_default(),
                )))
            }
            (Err(error), _) => {
                self.not_placed(claim.at.id, &spot, &error);
                Err(error)
            }
        }
    }

    /// Records the nodes of a claim, which were created by a request that was sent at `proved_at`, or later.
    pub(super) fn put(&self, claim: &Claim, spot: Spot, found: Found, proved_at: Instant) -> Placed {
        let lease = (spot.session.counts_from(), spot.session.timeout());
        let placed = Placed {
            spot,
            nodes: found.nodes,
            // As this client wrote it. A later one may be the mark of an eviction.
            version: 0,
            czxid: found.czxid,
            value: self.value(claim),
            granted: None,
            target: Target::Lock,
            proved_at,
            asked: self.profile.limits.lease(claim.lease),
            lease,
            ends: lease.0 + lease.1,
        };
        self.table.place(claim.at.id, placed.clone());
        placed
    }

    /// Answers by the state of a claim whose node was created, and which is among the contenders that were seen. Removes the node
    /// if the claim must not wait, or came too late.
    pub(super) async fn settle(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Placed,
        seen: Seen,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let standing = self.look(claim, &placed.spot, Some(&placed), Some(seen)).await;
        let standing = standing.map_err(placed_but)?;
        if self.now() > not_after {
            self.remove(&placed).await.map_err(placed_but)?;
            self.table.unplace(claim.at.id);
            return Ok(AcquireReply::TooLate);
        }
        self.conclude(claim, placed, standing, true).await
    }

    /// Answers by the state of a claim, which is `None` if its node is missing. `is_proved` says that the claim was not evicted
    /// before it was asked for.
    async fn conclude(
        self: &Arc<Self>,
        claim: &Claim,
        mut placed: Placed,
        standing: Option<Standing>,
        mut is_proved: bool,
    ) -> Result<AcquireReply, BackendError> {
        let (id, is_fair) = (claim.at.id, claim.fairness == Fairness::Fifo);
        match standing {
            Some(Standing::Granted) => {}
            Some(Standing::Waits { behind: Some(behind) }) if is_fair => {
                return Ok(self.waits(claim, &placed, Target::Node(behind)));
            }
            Some(Standing::Waits { behind: None }) if is_fair => {
                let permits = format!("{}/{LEASES}", self.names.lock(&claim.at.key));
                return Ok(self.waits(claim, &placed, Target::Folder(permits)));
            }
            Some(standing) => {
                self.remove(&placed).await.map_err(placed_but)?;
                self.table.unplace(id);
                return self.refused(claim, standing);
            }
            None => {
                let is_alive = self.own(id, &placed).await.map_err(placed_but)?.is_some();
                return Ok(match is_alive {
                    true => self.waiting(claim),
                    false => AcquireReply::Ended,
                });
            }
        }
        if let Mode::Permits { take, .. } = claim.mode
            && !placed.has_permits()
        {
            match self.take(claim, &placed, take).await? {
                Some(taken) => (placed, is_proved) = (taken, true),
                None => return Ok(AcquireReply::Ended),
            }
        }
        if !is_proved {
            let sent = self.now();
            match self.confirm(id, &placed).await.map_err(placed_but)? {
                Some(confirmed) => placed = confirmed,
                None => return Ok(AcquireReply::Ended),
            }
            placed.proved_at = sent;
        }
        let session = &placed.spot.session;
        session
            .hears(self.config.command_timeout)
            .await
            .map_err(placed_but)?;
        Ok(self.grant(id, &placed))
    }

    /// Answers a claim that holds its lock, as was proved of it.
    fn grant(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> AcquireReply {
        let proved_at = placed.proved_at;
        let (mut from, mut lease) = self.lease(placed, placed.asked, proved_at, true);
        let ends = from + lease;
        if placed.granted.is_none() {
            // The whole lease is shown, of which a part has passed.
            lease = placed.spot.session.timeout();
            from = ends - lease;
        } else if ends == placed.ends {
            (from, lease) = placed.lease;
        }
        let tokens = placed
            .granted
            .or_else(|| tokens(placed.czxid, placed.value.grants));
        let is_there = self.table.update(id, placed.czxid, |placed| {
            (placed.granted, placed.lease, placed.ends) = (tokens, (from, lease), ends);
            placed.proved_at = proved_at;
        });
        // The claim may have ended meanwhile.
        if !is_there {
            return AcquireReply::Ended;
        }
        let mut grant = Grant::new(tokens, from, lease);
        grant.confirmed_from = proved_at;
        grant.evidence = Some(Evidence::new(LockEvidence::new(id, placed, self)));
        AcquireReply::Granted(grant)
    }

    /// The start and length of a claim's lease, after a request that was sent at `sent`. A holder's ends with what is proved of its
    /// session; a waiter need not know when its session ends.
    pub(super) fn lease(
        &self,
        placed: &Placed,
        asked: Duration,
        sent: Instant,
        is_granted: bool,
    ) -> (Instant, Duration) {
        let session = &placed.spot.session;
        let timeout = session.timeout();
        let lease = match asked < placed.asked {
            true => asked.min(timeout),
            false => timeout,
        };
        let proved = session.counts_from() + timeout;
        match is_granted {
            true => (sent, lease.min(proved - sent)),
            false => (sent, lease),
        }
    }

    /// Answers a claim that waits for the target.
    fn waits(&self, claim: &Claim, placed: &Placed, target: Target) -> AcquireReply {
        let (from, lease) = self.lease(placed, placed.asked, self.now(), false);
        self.watched.set(claim.at.id, target.clone());
        self.table.update(claim.at.id, placed.czxid, |placed| {
            (placed.target, placed.ends) = (target, from + lease);
        });
        self.waiting(claim)
    }

    /// Returns the state of a claim behind the contenders before its node; without a node, behind all. `None` if its node is
    /// missing. Reads the contenders, unless the claim is among those that were `seen`.
    async fn look(
        &self,
        claim: &Claim,
        spot: &Spot,
        own: Option<&Placed>,
        seen: Option<Seen>,
    ) -> Result<Option<Standing>, BackendError> {
        let client = &spot.session.client;
        if self.config.layout == Layout::Ephemeral {
            return self.look_at_node(client, &spot.folder, own).await;
        }
        let is_own = |one: &Contender| own.is_some_and(|own| one.path == own.nodes[0]);
        let (mut earlier, names) = match seen {
            Some(seen) if seen.0.iter().any(is_own) => seen,
            _ => self.children(client, &spot.folder).await?,
        };
        if own.is_some() {
            let Some(at) = earlier.iter().position(is_own) else {
                return Ok(None);
            };
            earlier.truncate(at);
        }
        let (mode, kind) = (claim.mode, claim.mode.kind());
        // A claim that was answered before has the lock's kind.
        if own.is_none_or(|own| own.target == Target::Lock)
            && let Some(other) = self.other_kind(claim, client, &earlier, &names).await?
            && other != kind
        {
            return Ok(Some(Standing::OtherKind(other)));
        }
        let Mode::Permits { take, of } = mode else {
            return Ok(Some(standing(mode, &earlier)));
        };
        Ok(Some(match standing(Mode::Exclusive, &earlier) {
            Standing::Granted if !self.has_room(client, &claim.at.key, take, of).await? => {
                Standing::Waits { behind: None }
            }
            standing => standing,
        }))
    }
}
