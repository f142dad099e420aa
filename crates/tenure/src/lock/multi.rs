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

/// Several locks that are acquired and released together, of one client or of several.
///
/// It never holds while it waits: on a busy member all others are released, that member alone is waited for, and the
/// attempt starts again from it. So two of them never block each other for ever, whatever their order.
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

/// Locks to be held together: of one kind from a list, of other kinds by [`and`](Multi::and).
///
/// A member named twice, or none at all, is [`Invalid`](Error::Invalid) at first use.
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

/// A member is never kept in memory after an unlock: another search may wait for it.
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

    /// Waits for all members, for as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock(&self) -> Acquire<MultiGuard> {
        self.search(Patience::Forever, guards)
    }

    /// Waits for all members for at most `limit`; then [`Error::Timeout`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock_within(&self, limit: Duration) -> Acquire<MultiGuard> {
        self.search(Patience::Within(limit), guards)
    }

    /// Takes all members if they are free; `None` if any is busy.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Option<MultiGuard>> {
        self.search(Patience::Try, |guards| guards)
    }
}

/// Several held locks. Dropping it gives them all back.
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
/// // One lost member is enough: all that was to be done under all of them must stop.
/// let second = &guards.members()[1];
/// client.evict(ReleaseTarget::Claim(second.claim().clone())).await?;
/// assert!(second.verify().await.is_err(), "asked now; otherwise known within a third of the lease");
/// let lost = guards.lost().await;
/// assert_eq!((lost.member, lost.key.as_str()), (Some(1), "account:2"));
/// assert!(!guards.is_held() && guards.members()[0].is_held());
/// # Ok(()) }
/// ```
#[must_use = "locks are given back when their guard is dropped"]
pub struct MultiGuard {
    pub(crate) guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards, in the order in which the members were named.
    pub fn members(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether all members are believed to be held at this moment.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all members are believed to be held unless renewals come; zero once any is lost.
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(Guard::remaining);
        remaining.min().unwrap_or(Duration::ZERO)
    }

    /// The moment at which belief in the first member ends unless renewals come; the clock's origin once any is lost.
    pub fn believe_until(&self) -> Instant {
        let ends = self.guards.iter().map(Guard::believe_until);
        ends.min().unwrap_or(Instant::ORIGIN)
    }

    /// Which member was lost, and why; `None` while all are held. Of several losses, that of the first member.
    pub fn loss(&self) -> Option<Lost> {
        self.check().err()
    }

    /// Returns an error once any member is lost: for the steps of long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`] with the [`member`](Lost::member), from the first loss on.
    pub fn check(&self) -> Result<(), Lost> {
        for (at, guard) in self.guards.iter().enumerate() {
            guard.check().map_err(|lost| of_member(lost, at))?;
        }
        Ok(())
    }

    /// Waits until any member is lost, and says which and why.
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
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`Guard::verify`], of the first member that has one.
    pub async fn verify(&self) -> Result<(), Error> {
        let each = self.guards.iter().enumerate();
        let verified = each.map(async |(at, guard)| (at, guard.verify().await));
        for (at, verified) in futures_util::future::join_all(verified).await {
            verified.map_err(|error| lost_member(error, at))?;
        }
        Ok(())
    }

    /// Runs `work` for as long as all members are held; see [`Guard::while_held`].
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`.
    ///
    /// # Errors
    /// [`Lost`] as soon as any member is.
    pub async fn while_held<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        while_all_held(|| self.check(), self.lost(), work).await
    }

    /// Gives all members back, at the same time, and confirms it.
    ///
    /// # Cancel safety
    /// Dropped at any point, the locks are given back by the watchdog.
    ///
    /// # Errors
    /// The first member's error; the others are given back all the same.
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

/// Names the member in a loss.
fn of_member(mut lost: Lost, at: usize) -> Lost {
    lost.member = Some(at);
    lost
}

/// Like [`of_member`], for an error that may be a loss.
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

/// The guards of a search that waits.
fn guards(found: Option<MultiGuard>) -> MultiGuard {
    found.expect("an acquisition that waits ends in a guard or an error")
}

/// The search for all members at once.
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

/// The search is dropped when its time is over; it leaves nothing behind wherever that is.
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
    // The timer belongs to the first client.
    let first = &services[0];
    first.start()?;
    let met_busy = AtomicBool::default();
    let work = search(members, patience, told, &met_busy);
    if let Some(found) = within(&first.tasks, &*first.context.clock, limit, work).await {
        return found;
    }
    // A store that does not answer is not a member that is busy.
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

/// Takes the members one by one; on a busy one it lets go of all others, waits for that one, and starts from it.
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
            let mut lock: Acquire<Guard> = members[busy].lock();
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
            // A member was lost while the others were taken: all are given back, and the search starts again.
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

/// A member that was taken while the search goes on: given back at once unless the search keeps it, whatever `at_least`
/// says.
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
            // What could not be confirmed is seen through by the watchdog.
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

/// Tries every member that is not held yet; answers which one is busy.
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
            // While it waits, weather is not an answer.
            Err(error) if error.is_transient() && !matches!(patience, Patience::Try) => return Ok(Some(at)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits a little, differently for each search, so that two of them do not chase each other.
async fn pause(members: &[Lock], round: u32) {
    // A search with a bad key ended before.
    let Ok(queue) = &members[0].0.queue else { return };
    let most = Duration::from_millis(1 << round.min(5));
    sleep(&queue.services.tasks, most.mul_f64(queue.context().fraction())).await;
}

/// Refuses what can never be held together, before anything is sent.
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
