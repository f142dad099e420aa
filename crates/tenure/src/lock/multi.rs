//! Several locks held together, all or nothing.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use tenure_backend::Instant;

use crate::acquire::{Acquire, Search};
use crate::engine::attempt::{OnWaiting, Patience, unanswered};
use crate::engine::services::Services;
use crate::engine::timer::{sleep, within};
use crate::error::{Error, Lost};
use crate::guard::{Guard, while_all_held};
use crate::lock::any::Lock;
use crate::lock::scope::scoped;

/// Combines several locks, of one client or of several, that are acquired and released together.
///
/// A multi-lock holds no member while it waits: if a member is busy, it releases all others, waits for the busy member
/// alone, and then tries the others again. Two multi-locks therefore never deadlock, in any order of their members.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let both = tenure::multi([client.mutex("account:1"), client.mutex("account:2")]);
/// let guards = both.lock().await?;
/// assert_eq!(guards.members().len(), 2);
/// guards.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Multi {
    members: Vec<Lock>,
}

/// Combines a list of locks of one type into a multi-lock; [`and`](Multi::and) adds locks of other types.
///
/// An empty list, or two locks of one client with the same key, is [`Invalid`](Error::Invalid) at first use.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let (catalogue, slots) = (client.rwlock("catalogue"), client.semaphore("imports", 4));
/// let all = tenure::multi([client.mutex("supplier:7")]).and(catalogue.reader()).and(slots.permits(2));
/// let guards = all.lock().await?;
/// assert!(catalogue.try_write().await?.is_none());
/// assert!(slots.try_acquire_many(3).await?.is_none());
/// guards.unlock().await
/// # }
/// ```
pub fn multi(members: impl IntoIterator<Item = impl Into<Lock>>) -> Multi {
    Multi {
        members: members.into_iter().map(|lock| member(lock.into())).collect(),
    }
}

/// Makes a lock a member of a multi-lock. Its claim never lingers, because another multi-lock may wait for the key.
fn member(lock: Lock) -> Lock {
    Lock(lock.0.set(|options| options.member = true))
}

scoped!(Multi -> MultiGuard by lock, lock_within);

impl Multi {
    /// Adds a lock of any kind.
    #[must_use]
    pub fn and(mut self, lock: impl Into<Lock>) -> Self {
        self.members.push(member(lock.into()));
        self
    }

    /// Waits for all members, for as long as it takes, or for [`Settings::lock_limit`](crate::Settings::lock_limit).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock(&self) -> Acquire<MultiGuard> {
        let limits = self
            .members
            .iter()
            .filter_map(|lock| lock.0.request.options.limit);
        self.search(Patience::up_to(limits.min()), guards)
    }

    /// Waits for all members for at most `limit`; then [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock_within(&self, limit: Duration) -> Acquire<MultiGuard> {
        self.search(Patience::Within(limit), guards)
    }

    /// Acquires all members if they are free; `None` if any is busy. Waits for the answers of the stores, as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Option<MultiGuard>> {
        self.search(Patience::Try, |guards| guards)
    }
}

/// The guard of several held locks. Dropping the guard releases them all.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::ReleaseTarget;
///
/// let client = tenure::connect("memory:").await?;
/// let accounts = [client.mutex("account:1"), client.mutex("account:2")];
/// let guards = tenure::multi(accounts).lock().await?;
/// let moved = guards.while_held(async { "100 coins" }).await?;
/// # assert_eq!(moved, "100 coins");
/// // One lost member is enough: work that needs all members must stop.
/// let second = &guards.members()[1];
/// client.evict(ReleaseTarget::Claim(second.claim().clone())).await?;
/// assert!(second.verify().await.is_err(), "asked now; otherwise known within a third of the lease");
/// let lost = guards.lost().await;
/// assert_eq!((lost.member, lost.key.as_str()), (Some(1), "account:2"));
/// assert!(!guards.is_held() && guards.members()[0].is_held());
/// # Ok(()) }
/// ```
#[must_use = "a guard releases its locks when it is dropped"]
pub struct MultiGuard {
    pub(crate) guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards, in the order in which the members were given.
    pub fn members(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns true until any member is lost or its local deadline passes.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Time left until the earliest local deadline of the members, which renewals move; zero once any member is lost.
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(Guard::remaining);
        remaining.min().unwrap_or(Duration::ZERO)
    }

    /// The earliest local deadline of the members, which renewals move; the clock's origin once any member is lost.
    pub fn local_deadline(&self) -> Instant {
        let ends = self.guards.iter().map(Guard::local_deadline);
        ends.min().unwrap_or(Instant::ORIGIN)
    }

    /// Why the last renewal of a member has failed; `None` once all were confirmed. See [`Guard::renewal_error`].
    pub fn renewal_error(&self) -> Option<Error> {
        self.guards.iter().find_map(Guard::renewal_error)
    }

    /// The lost member and the reason; `None` while all are held. If several are lost, the first in the list of members.
    pub fn loss(&self) -> Option<Lost> {
        self.check().err()
    }

    /// Returns an error once any member is lost. Call it between the steps of long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`] with the [`member`](Lost::member), on every call after the loss.
    pub fn check(&self) -> Result<(), Lost> {
        for (at, guard) in self.guards.iter().enumerate() {
            guard.check().map_err(|lost| of_member(lost, at))?;
        }
        Ok(())
    }

    /// Waits until any member is lost, and returns the member and the reason.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn lost(&self) -> Lost {
        let each = self.guards.iter().enumerate();
        let mut members: FuturesUnordered<_> = each
            .map(async |(at, guard)| of_member(guard.lost().await, at))
            .collect();
        match members.next().await {
            Some(lost) => lost,
            None => std::future::pending().await,
        }
    }

    /// Asks the stores whether every member is held, as [`Guard::verify`] does for one.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the renewals.
    ///
    /// # Errors
    /// The error of [`Guard::verify`] for the first member that fails.
    pub async fn verify(&self) -> Result<(), Error> {
        let each = self.guards.iter().enumerate();
        let verified = each.map(async |(at, guard)| (at, guard.verify().await));
        for (at, verified) in futures_util::future::join_all(verified).await {
            verified.map_err(|error| lost_member(error, at))?;
        }
        Ok(())
    }

    /// Runs `work` while all members are held; see [`Guard::while_held`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`.
    ///
    /// # Errors
    /// [`Lost`] as soon as any member is lost.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        while_all_held(|| self.check(), self.lost(), work).await
    }

    /// Releases all members at the same time and waits for confirmation.
    ///
    /// # Cancel safety
    /// If the future is dropped at any point, the watchdog releases the locks.
    ///
    /// # Errors
    /// The error of the first member that fails; the others are released nevertheless.
    pub async fn unlock(self) -> Result<(), Error> {
        let each = self.guards.into_iter().enumerate();
        let mut unlocks: FuturesUnordered<_> = each
            .map(async |(at, guard)| guard.unlock().await.map_err(|error| lost_member(error, at)))
            .collect();
        let mut first = Ok(());
        while let Some(result) = unlocks.next().await {
            first = first.and(result);
        }
        first
    }
}

fn of_member(mut lost: Lost, at: usize) -> Lost {
    lost.member = Some(at);
    lost
}

/// If the error is a loss, puts the member's index into it. Returns other errors unchanged.
fn lost_member(error: Error, at: usize) -> Error {
    match error {
        Error::Lost(lost) => of_member(*lost, at).into(),
        other => other,
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guards).finish()
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Option<MultiGuard>, Error>> + Send>>;

impl Multi {
    fn search<G: 'static>(&self, patience: Patience, finish: fn(Option<MultiGuard>) -> G) -> Acquire<G> {
        let (patience, busy_is_timeout) = patience.or_try();
        Acquire::several(MemberSearch {
            members: self.members.clone(),
            patience,
            busy_is_timeout,
            on_waiting: None,
            running: None,
            finish,
        })
    }
}

/// Returns the guards of an acquisition that waits. Only a `try_` call may end without guards.
fn guards(found: Option<MultiGuard>) -> MultiGuard {
    found.expect("an acquisition that waits ends in a guard or an error")
}

/// The future that acquires all members, with or without waiting.
struct MemberSearch<G> {
    members: Vec<Lock>,
    patience: Patience,
    busy_is_timeout: bool,
    on_waiting: Option<OnWaiting>,
    running: Option<Running>,
    finish: fn(Option<MultiGuard>) -> G,
}

impl<G> Search<G> for MemberSearch<G> {
    fn on_waiting(mut self: Pin<&mut Self>, call: OnWaiting) {
        self.on_waiting = Some(call);
    }
}

impl<G> Future for MemberSearch<G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let running = this.running.get_or_insert_with(|| {
            let (members, on_waiting) = (std::mem::take(&mut this.members), this.on_waiting.take());
            match this.patience {
                Patience::Within(limit) => Box::pin(search_within(limit, members, this.patience, on_waiting)),
                patience => Box::pin(search(members, patience, on_waiting, AtomicBool::default())),
            }
        });
        let finish = this.finish;
        match running.as_mut().poll(cx) {
            Poll::Ready(Ok(None)) if this.busy_is_timeout => Poll::Ready(Err(Error::Timeout)),
            polled => polled.map_ok(finish),
        }
    }
}

/// Acquires within a time limit. After the limit, drops the search, which leaves no member held.
async fn search_within(
    limit: Duration,
    members: Vec<Lock>,
    patience: Patience,
    told: Option<OnWaiting>,
) -> Result<Option<MultiGuard>, Error> {
    check(&members)?;
    let services: Vec<Arc<Services>> = members
        .iter()
        .filter_map(|member| Some(member.0.queue.as_ref().ok()?.services.clone()))
        .collect();
    // The time limit uses the timer of the first member's client.
    let first = &services[0];
    first.start()?;
    let met_busy = AtomicBool::default();
    let work = search(members, patience, told, &met_busy);
    if let Some(found) = within(&first.tasks, &*first.context.clock, limit, work).await {
        return found;
    }
    // If the store did not answer, report its error: a time-out would say that a member is busy.
    Err(
        match services
            .iter()
            .find_map(|services| services.context.store_error())
        {
            Some(weather) => weather.into(),
            None if met_busy.into_inner() => Error::Timeout,
            None => unanswered(),
        },
    )
}

/// Acquires the members one by one. If one is busy, releases all others, waits for the busy one, and tries the others
/// again. `None`: a `try_` call could not hold all of them.
async fn search(
    members: Vec<Lock>,
    patience: Patience,
    mut told: Option<OnWaiting>,
    met_busy: impl Borrow<AtomicBool>,
) -> Result<Option<MultiGuard>, Error> {
    check(&members)?;
    let met_busy = met_busy.borrow();
    let mut awaited: Option<usize> = None;
    for round in 0u32.. {
        let mut guards: Vec<Option<Taken>> = members.iter().map(|_| None).collect();
        if let Some(busy) = awaited {
            // The time limit is that of the whole search.
            let mut lock: Acquire<Guard> = members[busy].0.lock(Patience::Forever);
            if let Some(told) = told.take() {
                lock = lock.on_waiting(told);
            }
            guards[busy] = Some(Taken(Some(lock.await?)));
        }
        awaited = fill(&members, &mut guards, patience, met_busy).await?;
        let taken: Vec<Taken> = guards.into_iter().flatten().collect();
        if awaited.is_none() {
            if taken.iter().all(Taken::is_held) {
                let guards = taken.into_iter().filter_map(Taken::keep).collect();
                return Ok(Some(MultiGuard { guards }));
            }
            // A member was lost while others were acquired: release all, and start again by waiting for the first.
            awaited = Some(0);
        }
        let mut returns: FuturesUnordered<_> = taken.into_iter().map(Taken::give_up).collect();
        while returns.next().await.is_some() {}
        if matches!(patience, Patience::Try) {
            return Ok(None);
        }
        if round > 0 {
            pause(&members, round).await;
        }
    }
    unreachable!("the rounds have no end")
}

/// A member that is held during the acquisition. Dropping it releases the member at once, even if its minimum hold
/// (`at_least`) is not over.
struct Taken(Option<Guard>);

impl Taken {
    fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(Guard::is_held)
    }

    fn keep(mut self) -> Option<Guard> {
        self.0.take()
    }

    async fn give_up(mut self) {
        if let Some(guard) = self.0.take() {
            // The watchdog retries a release that could not be confirmed.
            let _ = guard.give_up().await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.abandon();
        }
    }
}

/// Tries to acquire the missing members. Returns the index of the first busy one; `None` if all are held.
async fn fill(
    members: &[Lock],
    guards: &mut [Option<Taken>],
    patience: Patience,
    met_busy: &AtomicBool,
) -> Result<Option<usize>, Error> {
    for (at, member) in members.iter().enumerate() {
        if guards[at].is_some() {
            continue;
        }
        match member.try_lock().await {
            Ok(Some(guard)) => guards[at] = Some(Taken(Some(guard))),
            Ok(None) => {
                met_busy.store(true, Ordering::Relaxed);
                return Ok(Some(at));
            }
            // After a transient error, an acquisition that waits treats the member as busy.
            Err(error) if error.is_transient() && !matches!(patience, Patience::Try) => return Ok(Some(at)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Pauses for a random time up to 2^`round` ms, at most 32 ms, so that two multi-locks do not collide for ever.
async fn pause(members: &[Lock], round: u32) {
    // Members with an invalid key were refused earlier.
    let Ok(queue) = &members[0].0.queue else { return };
    let most = Duration::from_millis(1 << round.min(5));
    sleep(&queue.services.tasks, most.mul_f64(queue.context().fraction())).await;
}

/// Refuses, before any call, an empty list, an invalid key, and two members of one client with the same key.
fn check(members: &[Lock]) -> Result<(), Error> {
    if members.is_empty() {
        return Err(Error::Invalid("a multi-lock has at least one member".into()));
    }
    let mut names = HashSet::new();
    for member in members {
        let queue = member.0.queue.as_ref().map_err(Clone::clone)?;
        if !names.insert((queue.context().id, queue.key.clone())) {
            return Err(Error::Invalid(
                format!("the key {:?} is named twice in one multi-lock", queue.key).into(),
            ));
        }
    }
    Ok(())
}
