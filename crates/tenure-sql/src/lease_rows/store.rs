//! The store: its requests become statements on connections of the pool, each in a task of its own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Cause, Claim, ClaimRef, ClientId, Clock,
    Cursor, Effect, Fault, Finding, Grant, HolderId, HolderStatus, Instant, Invalidation, Invalidations,
    Kind, LockKey, LockStatus, Loss, MAX_NOT_AFTER, Mode, Page, Phase, Profile, Query, ReleaseReply,
    ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, ServerClock, TURN, TokenRange, Wakes,
};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::holder;
use super::own_claims::{Known, OwnClaims};
use super::profile::profile;
use super::reply::{Outcome, Row, Taken};
use super::statement::{Statement, Statements, Values};
use crate::server::Config;
use crate::server::error::{Failure, invalid, runtime_ended, unexpected_reply};
use crate::server::pool::{Dial, Pool, Session};

/// How often a client looks for rows to remove.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// How often a statement is repeated whose row another session has locked.
const TRIES: usize = 3;

/// The shortest time for which an eviction keeps a row: with none, the row would never be free again.
const MIN_COOLDOWN: Duration = Duration::from_millis(1);

/// A connection that runs the statements of lease rows.
pub(crate) trait LeaseSession: Session {
    /// A lower bound of the server's clock, from the replies on this connection.
    fn clock(&self) -> &ServerClock;

    fn run(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Takes the row of `values.key` for the claim, if it is free.
    fn take(
        &mut self,
        statements: &Statements,
        values: &Values<'_>,
    ) -> impl Future<Output = Result<Taken, Failure>> + Send;

    /// Looks for settings of the server that weaken the locks.
    fn examine(&mut self, config: &Config) -> impl Future<Output = Result<Vec<Finding>, Failure>> + Send;
}

/// How much text the columns hold, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) key: usize,
    pub(crate) holder: usize,
}

/// Locks in the rows of a table.
pub(crate) struct LeaseRowStore<D: Dial<Session: LeaseSession>> {
    inner: Arc<Inner<D>>,
    /// The runtime on which the store was opened, and all its tasks run.
    runtime: Handle,
    process: u32,
}

struct Inner<D: Dial<Session: LeaseSession>> {
    pool: Arc<Pool<D>>,
    statements: Statements,
    widths: Widths,
    config: Config,
    profile: Profile,
    claims: OwnClaims,
    swept: Mutex<Instant>,
}

impl<D: Dial<Session: LeaseSession>> LeaseRowStore<D> {
    /// Creates a store, on the runtime of the caller.
    pub(crate) fn new(
        pool: Arc<Pool<D>>,
        statements: Statements,
        widths: Widths,
        config: Config,
    ) -> Arc<Self> {
        let inner = Inner {
            pool,
            statements,
            widths,
            profile: profile(&config),
            swept: Mutex::new(config.clock.now()),
            config,
            claims: OwnClaims::default(),
        };
        Arc::new(LeaseRowStore {
            inner: Arc::new(inner),
            runtime: Handle::current(),
            process: std::process::id(),
        })
    }

    /// Runs work to its end on the store's runtime, even if its caller stops. Keeps the store until then: dropping it closes
    /// its connections.
    fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, BackendError>> + Send + 'static {
        let store = self.clone();
        async move {
            if store.process != std::process::id() {
                return Err(forked());
            }
            store.runtime.spawn(work).await.map_err(|error| match error.is_panic() {
                true => BackendError::panicked(),
                false => runtime_ended(),
            })
        }
    }

    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Call<T> {
        let work = self.spawn(work);
        Call::new(async move { work.await.flatten() })
    }

    /// Runs one task for each element of a batch. `failed` makes an answer of an error.
    fn batch<A: Send + 'static, T: Send + 'static, F>(
        self: &Arc<Self>,
        batch: Batch<A>,
        work: fn(Arc<Inner<D>>, A) -> F,
        failed: fn(BackendError) -> T,
    ) -> BatchCall<T>
    where
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        let too_many = self.inner.profile.limits.check_batch(batch.len());
        let inner = self.inner.clone();
        let works: Vec<_> = batch
            .into_iter()
            .map(|element| {
                let (inner, too_many) = (inner.clone(), too_many.clone());
                self.spawn(async move {
                    too_many?;
                    work(inner, element).await
                })
            })
            .collect();
        BatchCall::new(async move {
            let replies = join_all(works).await.into_iter();
            replies
                .map(|reply| reply.flatten().unwrap_or_else(failed))
                .collect()
        })
    }
}

impl<D: Dial<Session: LeaseSession>> Inner<D> {
    fn now(&self) -> Instant {
        self.config.clock.now()
    }

    /// Refuses what the layout does not serve, before anything is sent.
    fn check(&self, claim: &Claim) -> Result<(), BackendError> {
        claim.check(&self.profile.limits)?;
        if !self.profile.serves(claim.mode, claim.fairness) {
            let layout = self.profile.layout;
            let message =
                format!("the layout `{layout}` has unfair mutexes only: use another store for this lock");
            return Err(BackendError::unsupported(message));
        }
        let (length, most) = (claim.at.key.as_str().chars().count(), self.widths.key);
        if length > most {
            let message = format!(
                "this key has {length} characters, and the table's column holds {most}: use a shorter key"
            );
            return Err(invalid(message));
        }
        Ok(())
    }

    /// Number of tokens that a claim reserves; `None` on a layout without tokens.
    fn tokens(&self, claim: &Claim) -> Option<u32> {
        let has_tokens = self.statements.layout.has_tokens();
        has_tokens.then(|| self.profile.limits.grants(claim.grants).get())
    }

    async fn acquire(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        self.check(&claim)?;
        let id = claim.at.id;
        match self.claims.begin(&claim, self.now()) {
            Known::Ended => return Ok(AcquireReply::Ended),
            Known::Granted(tokens) => {
                let reply = self.poll_granted(&claim, tokens).await?;
                if matches!(reply, AcquireReply::Ended) {
                    self.ended(&claim.at);
                }
                return Ok(reply);
            }
            Known::Nothing => {}
        }
        let reply = self.place(&claim, not_after).await;
        match &reply {
            Ok(AcquireReply::Granted(grant)) => {
                self.claims.answered(id, Some(grant.tokens));
                self.pool.keep_one(true);
                self.sweep_now_and_then();
            }
            Err(error) if error.effect() == Effect::Unknown => self.claims.unanswered(id, not_after),
            _ => self.claims.answered(id, None),
        }
        reply
    }

    /// Asks for the row of a claim.
    async fn place(&self, claim: &Claim, not_after: Instant) -> Result<AcquireReply, BackendError> {
        let tokens = self.tokens(claim);
        let (id, text) = (
            claim.at.id.to_string(),
            holder::write(claim, tokens, self.widths.holder),
        );
        let lease = self.profile.limits.lease(claim.lease);
        let mut values = Values {
            key: claim.at.key.as_str(),
            id: &id,
            holder: &text,
            tokens: tokens.unwrap_or_default().into(),
            lease: micros(lease),
            ..Values::default()
        };
        let mut first = true;
        let (taken, sent) = loop {
            let mut leased = self.pool.lease().await?;
            values.until = i64::try_from(leased.session.clock().at(not_after)).unwrap_or(i64::MAX);
            let sent = self.now();
            let taken = self
                .pool
                .within(leased.session.take(&self.statements, &values))
                .await;
            match leased.end(taken) {
                // The time limit was computed from a lower bound of the server's clock, which this reply has raised.
                Ok(Taken::Late) if first && sent < not_after => first = false,
                Ok(taken) => break (taken, sent),
                Err(Failure::Busy) => break (Taken::Busy(None), sent),
                Err(Failure::Error(error)) => return Err(error),
            }
        };
        Ok(match taken {
            Taken::Granted(last) => AcquireReply::Granted(Grant::new(run(last, tokens)?, sent, lease)),
            Taken::Own(last) => return self.poll_granted(claim, run(last, tokens)?).await,
            Taken::Ended => AcquireReply::Ended,
            Taken::Late => AcquireReply::TooLate,
            Taken::Busy(left) => {
                let pause = self.claims.poll_after(claim.at.id, self.now());
                AcquireReply::Waiting {
                    ahead: None,
                    poll_after: left
                        .filter(|left| !left.is_zero())
                        .map_or(pause, |left| pause.min(left)),
                }
            }
        })
    }

    /// Polls a claim that holds its row, which restarts its lease.
    async fn poll_granted(
        &self,
        claim: &Claim,
        tokens: Option<TokenRange>,
    ) -> Result<AcquireReply, BackendError> {
        match self.renew_claim(&RenewRequest::of(claim)).await? {
            RenewReply::Alive { held_from, lease } => {
                Ok(AcquireReply::Granted(Grant::new(tokens, held_from, lease)))
            }
            RenewReply::Gone(_) => Ok(AcquireReply::Ended),
            RenewReply::Unknown(error) => Err(error),
        }
    }

    async fn renew(self: Arc<Self>, request: RenewRequest) -> Result<RenewReply, BackendError> {
        request.check(&self.profile)?;
        if request.only == Phase::Waiting {
            // A claim that waits is not in the table.
            return Ok(RenewReply::Gone(Loss::Missing));
        }
        if request.downgrade {
            request.mode(Mode::Exclusive)?;
        }
        let renewed = self.renew_claim(&request).await?;
        match (&renewed, request.raise) {
            (RenewReply::Gone(_), _) => {
                self.claims.lose(request.claim.id, self.now());
                self.pool.keep_one(self.claims.holds_any());
            }
            // The row tells the number of tokens as it was before: whoever raises them asks for as many.
            (RenewReply::Alive { .. }, Some(tokens)) if self.statements.layout.has_tokens() => {
                self.claims.raise(request.claim.id, tokens);
            }
            _ => {}
        }
        Ok(renewed)
    }

    async fn renew_claim(&self, request: &RenewRequest) -> Result<RenewReply, BackendError> {
        let mut leased = self.pool.lease().await?;
        let renewed = self
            .pool
            .within(self.renew_row(&mut leased.session, request))
            .await;
        leased.end(renewed).map_err(Failure::into_error)
    }

    /// Renews a claim's row. A row that another session has locked is tried again, and is never taken for lost.
    async fn renew_row(
        &self,
        session: &mut D::Session,
        request: &RenewRequest,
    ) -> Result<RenewReply, Failure> {
        let id = request.claim.id.to_string();
        let lease = self.profile.limits.lease(request.lease);
        let raise = request.raise.map_or(0, |tokens| tokens.last().get());
        let values = Values {
            key: request.claim.key.as_str(),
            id: &id,
            lease: micros(lease),
            shorten: request.shorten_only,
            raise: i64::try_from(raise).unwrap_or(i64::MAX),
            ..Values::default()
        };
        for _ in 0..TRIES {
            let held_from = self.now();
            let is_renewed = match session.run(&self.statements.renew, &values).await {
                Ok(outcome) => outcome.changed > 0,
                Err(Failure::Busy) => false,
                Err(error) => return Err(error),
            };
            if is_renewed && !request.shorten_only {
                return Ok(RenewReply::Alive { held_from, lease });
            }
            let held_from = self.now();
            let row = session.run(&self.statements.look, &values).await?.rows.pop();
            match row {
                // A row that is not changed has a lease that ends earlier.
                Some(row) if row.is_of(&id) && row.is_held && request.shorten_only => {
                    let lease = row.left.map_or(lease, |left| left.min(lease));
                    return Ok(RenewReply::Alive { held_from, lease });
                }
                Some(row) if row.is_of(&id) && row.is_held => {}
                row => return Ok(RenewReply::Gone(loss(row.as_ref(), &id))),
            }
        }
        Err(Failure::Busy)
    }

    fn ended(&self, claim: &ClaimRef) {
        self.claims.end(claim.id, self.now());
        self.pool.keep_one(self.claims.holds_any());
    }

    async fn release(self: Arc<Self>, request: ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            self.check(successor)?;
        }
        let freed = match (&request.target, &request.cause) {
            (ReleaseTarget::Claim(claim), Cause::Evicted { by }) => {
                self.evict(
                    &claim.key,
                    Some(&HolderId::Claim(claim.id)),
                    by.as_deref(),
                    request.cooldown,
                )
                .await?
            }
            (ReleaseTarget::Claim(claim), _) => self.release_own(claim).await?,
            (ReleaseTarget::Foreign { key, id }, cause) => {
                self.evict(
                    key,
                    Some(&HolderId::Foreign(id.clone())),
                    evictor(cause),
                    request.cooldown,
                )
                .await?
            }
            (ReleaseTarget::All(key), cause) => {
                self.evict(key, None, evictor(cause), request.cooldown).await?
            }
        };
        let successor = match request.successor {
            None => None,
            Some(successor) => Some(self.acquire(successor.claim, successor.not_after).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "the next waiter was not granted the lock with the release: it polls");
                AcquireReply::Waiting { ahead: None, poll_after: TURN }
            })),
        };
        Ok(ReleaseReply::Done {
            freed: freed.into_iter().collect(),
            others: None,
            successor,
        })
    }

    /// Releases a claim. If a request of it may still take the row, releases it again when that time has passed, and once
    /// more after the time that a statement may take.
    async fn release_own(self: &Arc<Self>, claim: &ClaimRef) -> Result<Option<HolderId>, BackendError> {
        let may_arrive_until = self.claims.begin_release(claim.id, self.now() + MAX_NOT_AFTER);
        let released = self.release_row(claim).await;
        match &released {
            Ok(_) => self.ended(claim),
            Err(error) if error.effect() == Effect::None => self.claims.cancel_release(claim.id),
            Err(_) => {}
        }
        if let Some(until) = may_arrive_until {
            // What is written just before the limit is invisible until its commit.
            let waits = [until - self.now(), self.config.command_timeout];
            let (inner, claim) = (self.clone(), claim.clone());
            tokio::spawn(async move {
                for wait in waits {
                    sleep(wait).await;
                    if let Err(error) = inner.release_row(&claim).await {
                        tracing::warn!(key = %claim.key, %error, "a lock may stay until its lease ends");
                    }
                }
            });
        }
        let was_held = released?;
        Ok(was_held.then_some(HolderId::Claim(claim.id)))
    }

    /// Frees a claim's row. Returns whether the claim held it until then, as far as the database returns the row.
    async fn release_row(&self, claim: &ClaimRef) -> Result<bool, BackendError> {
        let id = claim.id.to_string();
        let values = Values {
            key: claim.key.as_str(),
            id: &id,
            ..Values::default()
        };
        let outcome = self.run(&self.statements.release, &values).await?;
        let was_held = outcome.rows.first().is_none_or(|before| before.is_held);
        Ok(outcome.changed > 0 && was_held)
    }

    /// Takes a key from its holder, or from this one only.
    async fn evict(
        &self,
        key: &LockKey,
        target: Option<&HolderId>,
        by: Option<&str>,
        cooldown: Duration,
    ) -> Result<Option<HolderId>, BackendError> {
        let holder = match by {
            Some(by) => format!("{} by {by}", holder::EVICTED),
            None => holder::EVICTED.to_owned(),
        };
        let holder: String = holder.chars().take(self.widths.holder).collect();
        let cooldown = cooldown.max(MIN_COOLDOWN);
        let look = Values {
            key: key.as_str(),
            ..Values::default()
        };
        loop {
            let Some((row, is)) = self.held(self.run(&self.statements.look, &look).await?.rows.pop()) else {
                return Ok(None);
            };
            if target.is_some_and(|target| is.id != *target) {
                return Ok(None);
            }
            let seen = row.token.unwrap_or_default();
            let values = Values {
                holder: &holder,
                target: row.holder.as_deref().unwrap_or_default(),
                seen,
                lease: micros(cooldown),
                ..look
            };
            // If nothing was changed, the row has another holder now.
            if self.run(&self.statements.evict, &values).await?.changed > 0 {
                if let Some(settle) = &self.statements.settle {
                    sleep(cooldown).await;
                    let seen = seen + 1;
                    if let Err(error) = self.run(settle, &Values { seen, ..look }).await {
                        tracing::warn!(%key, %error, "the row stays locked for programs that know no leases");
                    }
                }
                return Ok(Some(is.id));
            }
        }
    }

    /// Runs one statement, again if another session is at the row.
    async fn run(&self, statement: &Statement, values: &Values<'_>) -> Result<Outcome, BackendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut leased = self.pool.lease().await?;
            let outcome = self.pool.within(leased.session.run(statement, values)).await;
            match leased.end(outcome) {
                Err(Failure::Busy) if tries < TRIES => {}
                outcome => return outcome.map_err(Failure::into_error),
            }
        }
    }

    /// Reads who holds a row; `None` if nobody does.
    fn held(&self, row: Option<Row>) -> Option<(Row, holder::Holder)> {
        let row = row.filter(|row| row.is_held && !row.is_of(holder::EVICTED))?;
        let is = holder::read(row.holder.as_deref()?, self.statements.layout.has_tokens());
        Some((row, is))
    }

    async fn inspect(self: Arc<Self>, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let values = Values::default();
        let (rows, limit) = match &query {
            Query::Key(key) => {
                let values = Values {
                    key: key.as_str(),
                    ..values
                };
                (self.run(&self.statements.look, &values).await?.rows, usize::MAX)
            }
            Query::Prefix { prefix, after, limit } => {
                let after = after.as_ref().map_or("", Cursor::as_str);
                let values = Values {
                    prefix,
                    after,
                    limit: i64::from(limit.get()) + 1,
                    ..values
                };
                let rows = self.run(&self.statements.list, &values).await?.rows;
                (rows, usize::try_from(limit.get()).unwrap_or(usize::MAX))
            }
        };
        let is_full = rows.len() > limit;
        let rows: Vec<Row> = rows.into_iter().take(limit).collect();
        let next = rows
            .last()
            .filter(|_| is_full)
            .map(|row| Cursor::new(row.key.as_str()));
        let statuses = rows.into_iter().filter_map(|row| self.status(row)).collect();
        Ok(Page::new(statuses, next))
    }

    fn status(&self, row: Row) -> Option<LockStatus> {
        let (row, is) = self.held(Some(row))?;
        let first = row
            .token
            .zip(is.tokens)
            .map(|(last, tokens)| last - i64::from(tokens) + 1);
        let token = first.and_then(|first| u64::try_from(first).ok()?.try_into().ok());
        let holder = HolderStatus::new(is.id, is.label, Mode::Exclusive, token, row.left);
        let key = LockKey::new(row.key).ok()?;
        Some(LockStatus::new(key, Kind::Mutex, vec![holder], None))
    }

    async fn examine(self: Arc<Self>) -> Result<Vec<Finding>, BackendError> {
        let mut leased = self.pool.lease().await?;
        let found = self.pool.within(leased.session.examine(&self.config)).await;
        leased.end(found).map_err(Failure::into_error)
    }

    /// Removes rows that have expired, at most once in [`SWEEP_INTERVAL`], in a task of its own.
    fn sweep_now_and_then(self: &Arc<Self>) {
        let now = self.now();
        if self.statements.sweep.is_none() || now - *self.swept.lock() < SWEEP_INTERVAL {
            return;
        }
        *self.swept.lock() = now;
        let inner = self.clone();
        tokio::spawn(async move {
            let values = Values {
                idle: micros(inner.config.sweep_after),
                ..Values::default()
            };
            if let Some(sweep) = &inner.statements.sweep
                && let Err(error) = inner.run(sweep, &values).await
            {
                tracing::debug!(%error, "expired rows are not removed: the next sweep tries again");
            }
        });
    }
}

fn evictor(cause: &Cause) -> Option<&str> {
    match cause {
        Cause::Evicted { by } => by.as_deref(),
        _ => None,
    }
}

/// Why a claim no longer holds its row.
fn loss(row: Option<&Row>, id: &str) -> Loss {
    match row {
        Some(row) if row.is_of(id) => Loss::Expired,
        Some(row) if row.is_of(holder::EVICTED) => {
            let text = row.holder.as_deref().unwrap_or_default();
            let by = text
                .strip_prefix(holder::EVICTED)
                .and_then(|rest| rest.strip_prefix(" by "));
            Loss::Evicted {
                by: by.map(Arc::from),
            }
        }
        _ => Loss::Missing,
    }
}

/// The run of tokens that ends with this one.
fn run(last: Option<i64>, tokens: Option<u32>) -> Result<Option<TokenRange>, BackendError> {
    let Some((last, tokens)) = last.zip(tokens) else {
        return Ok(None);
    };
    let first = u64::try_from(last - i64::from(tokens) + 1).ok();
    let run = first.and_then(|first| TokenRange::new(first.try_into().ok()?, tokens.try_into().ok()?));
    match run {
        Some(run) => Ok(Some(run)),
        None => Err(unexpected_reply()),
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Error for a call in a child made by `fork`, whose parent opened the connections.
fn forked() -> BackendError {
    let message = "this store belongs to the parent process: connect again after a fork";
    BackendError::new(Fault::Closed, Effect::None, message)
}

impl<D: Dial<Session: LeaseSession>> Backend for LeaseRowStore<D> {
    fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call(self.inner.clone().acquire(claim, not_after))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        self.batch(batch, Inner::renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        self.batch(batch, Inner::release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        Call::ready(Err(BackendError::unsupported(
            "this layout has no wake-ups: waiters poll",
        )))
    }

    fn invalidations(self: Arc<Self>, _: ClientId) -> Option<Invalidations> {
        // A new receiver reports the present connection as a change, too.
        let mut replaced = self.inner.pool.replacements();
        replaced.mark_changed();
        Some(Invalidations::new(stream::unfold(
            replaced,
            async |mut replaced| {
                let changed = replaced.changed().await;
                changed.ok().map(|()| (Invalidation::All, replaced))
            },
        )))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.call(self.inner.clone().inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.call(self.inner.clone().examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if self.process != std::process::id() {
            return Call::ready(Err(forked()));
        }
        self.inner.pool.close();
        Call::ready(Ok(()))
    }
}

impl<D: Dial<Session: LeaseSession>> Drop for LeaseRowStore<D> {
    fn drop(&mut self) {
        self.inner.pool.close();
    }
}

impl<D: Dial<Session: LeaseSession>> fmt::Debug for LeaseRowStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseRowStore")
            .field(&self.inner.config.address())
            .finish()
    }
}
