//! The lock of `run` and `hold`: turns options into a held lock of one key or several.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as Stopwatch};

use tenure::backend::Liveness;
use tenure::{
    Acquire, ClaimRef, Client, Error, Guard, Instant, Leader, Lock, LockKey, Lost, LostCause, Multi,
    MultiGuard, Mutex, Profile, RwLock, Semaphore,
};

use super::holder::HolderSearch;
use super::store::{CONNECT_LIMIT, ChosenStore, key};
use crate::args::{Kind, LockArgs, Wait};
use crate::guardian::now;
use crate::messages::Failure;
use crate::output;

/// What to do about a store that does not offer the lock.
const ANOTHER_LOCK: &str = "choose another lock, or another store with --url or TENURE_URL";

/// The lock that the options ask for, with valid keys.
pub(super) struct LockRequest<'a> {
    args: &'a LockArgs,
    keys: Vec<LockKey>,
    /// Start of the time of `--wait`.
    began: Stopwatch,
    /// The claim of this process. Set when the claim begins to wait.
    waiting: Arc<OnceLock<ClaimRef>>,
}

pub(super) struct HeldLock {
    guards: Guards,
    /// The shortest lease that the store granted a member. Some servers grant less than they are asked for.
    pub(super) lease: Duration,
    /// Time from the request for the lock to the grant.
    pub(super) waited: Duration,
}

enum Guards {
    One(Guard),
    Several(MultiGuard),
}

/// The result of an attempt to acquire a lock.
pub(super) enum Outcome {
    Held(HeldLock),
    /// The lock, or one of several, was not free, and `--no-wait` was given.
    Busy,
    /// The time of `--wait` has passed without a grant.
    Timeout,
}

pub(super) enum Release {
    Confirmed,
    /// The lock was lost before the release.
    WasLost(Lost),
    /// The release failed, or the store has not confirmed it in time.
    Unconfirmed(Failure),
}

impl<'a> LockRequest<'a> {
    pub(super) fn of(args: &'a LockArgs) -> Result<LockRequest<'a>, Failure> {
        let keys: Result<_, _> = args.keys().into_iter().map(key).collect();
        Ok(LockRequest {
            args,
            keys: keys?,
            began: Stopwatch::now(),
            waiting: Arc::default(),
        })
    }

    /// Returns the quoted keys, separated by commas: `"a", "b"`.
    pub(super) fn names(&self) -> String {
        quoted(self.keys.iter())
    }

    /// Returns `names`, or `one of "a", "b"` for several keys: the library does not tell which of them was busy.
    pub(super) fn one_of_names(&self) -> String {
        match self.keys.as_slice() {
            [_] => self.names(),
            _ => format!("one of {}", self.names()),
        }
    }

    /// Connects to the store, with the label of `--label`. Connecting is part of the time of `--wait`.
    pub(super) async fn connect(&self, store: &ChosenStore) -> Result<Client, Failure> {
        let limit = match self.args.wait() {
            Wait::Not => None,
            Wait::Forever => Some(CONNECT_LIMIT),
            Wait::AtMost(limit) => Some(limit.saturating_sub(self.began.elapsed())),
        };
        store.connect(self.args.label.as_deref(), limit).await
    }

    /// Returns the lease, rounded up to the store's shortest.
    pub(super) fn lease(&self, client: &Client) -> Duration {
        rounded_up(self.args.lease, client.profile())
    }

    pub(super) fn holder<'c>(&self, client: &'c Client) -> HolderSearch<'c> {
        HolderSearch::new(client, &self.keys, self.waiting.clone())
    }

    /// Acquires the lock. Waits as long as the options say. The lock is lost once it was held for `max_hold`.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the claim. Closing the client waits for the withdrawal.
    pub(super) async fn acquire(
        &self,
        client: &Client,
        max_hold: Option<Duration>,
        on_waiting: impl FnOnce(&ClaimRef) + Send + 'static,
    ) -> Result<Outcome, Failure> {
        let waiting = self.waiting.clone();
        let on_waiting = move |claim: &ClaimRef| {
            // Cannot fail: a request is acquired once, and its `acquire` calls this closure at most once.
            let _ = waiting.set(claim.clone());
            on_waiting(claim);
        };
        let lease = self.lease(client);
        let handle = |key| LockHandle::of(client, key, self.args.kind(), lease, max_hold);
        let began = Stopwatch::now();
        let wait = match self.args.wait() {
            Wait::AtMost(limit) => Wait::AtMost(limit.saturating_sub(self.began.elapsed())),
            wait => wait,
        };
        let taken = if let [key] = self.keys.as_slice() {
            let guard = handle(key).take(wait, on_waiting).await;
            guard.map(|guard| guard.map(Guards::One))
        } else {
            let multi = tenure::multi(self.keys.iter().map(|key| handle(key).member()));
            let guards = several(&multi, wait, on_waiting).await;
            guards.map(|guards| guards.map(Guards::Several))
        };
        match taken {
            Ok(Some(guards)) => Ok(Outcome::Held(HeldLock::of(guards, began.elapsed()))),
            Ok(None) => Ok(Outcome::Busy),
            Err(Error::Timeout) => Ok(Outcome::Timeout),
            Err(error) => {
                let failure = Failure::of(format!("cannot lock {}", self.names()), &error);
                Err(match error {
                    Error::Unsupported(_) => failure.with_help(ANOTHER_LOCK),
                    _ => failure,
                })
            }
        }
    }
}

fn quoted<'a>(keys: impl Iterator<Item = &'a LockKey>) -> String {
    let quoted: Vec<String> = keys.map(|key| format!("{key:?}")).collect();
    quoted.join(", ")
}

/// Rounds a lease up to the store's shortest. The store refuses one above its longest, and may still give less.
pub(super) fn rounded_up(lease: Duration, profile: &Profile) -> Duration {
    profile.limits.lease(lease)
}

/// The library's handle for one key, with all options applied.
enum LockHandle {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, NonZeroU32),
}

/// Applies the options that all handles have: the lease and the limit of the hold.
macro_rules! with_options {
    ($handle:expr, $lease:expr, $max_hold:expr) => {{
        let handle = $handle.lease($lease);
        match $max_hold {
            Some(time) => handle.max_hold(time),
            None => handle,
        }
    }};
}

impl LockHandle {
    fn of(
        client: &Client,
        key: &LockKey,
        kind: Kind,
        lease: Duration,
        max_hold: Option<Duration>,
    ) -> LockHandle {
        match kind {
            Kind::Mutex { fair } => {
                let mutex = with_options!(client.mutex(key.as_str()), lease, max_hold);
                LockHandle::Mutex(if fair { mutex.fair() } else { mutex })
            }
            Kind::Read => LockHandle::Read(with_options!(client.rwlock(key.as_str()), lease, max_hold)),
            Kind::Write => LockHandle::Write(with_options!(client.rwlock(key.as_str()), lease, max_hold)),
            Kind::Permits { take, of } => {
                let semaphore = client.semaphore(key.as_str(), of.get());
                LockHandle::Permits(with_options!(semaphore, lease, max_hold), take)
            }
        }
    }

    fn member(&self) -> Lock {
        match self {
            LockHandle::Mutex(mutex) => mutex.into(),
            LockHandle::Read(lock) => lock.reader(),
            LockHandle::Write(lock) => lock.writer(),
            LockHandle::Permits(semaphore, take) => semaphore.permits(take.get()),
        }
    }

    async fn take(
        &self,
        wait: Wait,
        on_waiting: impl FnOnce(&ClaimRef) + Send + 'static,
    ) -> Result<Option<Guard>, Error> {
        match wait {
            Wait::Not => self.try_lock().await,
            Wait::Forever => self.lock().on_waiting(on_waiting).await.map(Some),
            Wait::AtMost(limit) => self.lock_within(limit).on_waiting(on_waiting).await.map(Some),
        }
    }

    fn lock(&self) -> Acquire<Guard> {
        match self {
            LockHandle::Mutex(mutex) => mutex.lock(),
            LockHandle::Read(lock) => lock.read(),
            LockHandle::Write(lock) => lock.write(),
            LockHandle::Permits(semaphore, take) => semaphore.acquire_many(take.get()),
        }
    }

    fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        match self {
            LockHandle::Mutex(mutex) => mutex.lock_within(limit),
            LockHandle::Read(lock) => lock.read_within(limit),
            LockHandle::Write(lock) => lock.write_within(limit),
            LockHandle::Permits(semaphore, take) => semaphore.acquire_many_within(take.get(), limit),
        }
    }

    fn try_lock(&self) -> Acquire<Option<Guard>> {
        match self {
            LockHandle::Mutex(mutex) => mutex.try_lock(),
            LockHandle::Read(lock) => lock.try_read(),
            LockHandle::Write(lock) => lock.try_write(),
            LockHandle::Permits(semaphore, take) => semaphore.try_acquire_many(take.get()),
        }
    }
}

async fn several(
    multi: &Multi,
    wait: Wait,
    on_waiting: impl FnOnce(&ClaimRef) + Send + 'static,
) -> Result<Option<MultiGuard>, Error> {
    match wait {
        Wait::Not => multi.try_lock().await,
        Wait::Forever => multi.lock().on_waiting(on_waiting).await.map(Some),
        Wait::AtMost(limit) => multi.lock_within(limit).on_waiting(on_waiting).await.map(Some),
    }
}

impl Guards {
    fn members(&self) -> &[Guard] {
        match self {
            Guards::One(guard) => std::slice::from_ref(guard),
            Guards::Several(guards) => guards.members(),
        }
    }
}

impl HeldLock {
    /// Wraps the lock of an elected leader, which was acquired after `waited`.
    pub(super) fn by(leader: Leader, waited: Duration) -> HeldLock {
        HeldLock::of(Guards::One(leader.into()), waited)
    }

    fn of(guards: Guards, waited: Duration) -> HeldLock {
        let leases = guards.members().iter().map(Guard::lease);
        HeldLock {
            lease: leases.min().unwrap_or(Duration::ZERO),
            guards,
            waited,
        }
    }

    /// Returns one guard for each key, in the order of [`LockArgs::keys`].
    pub(super) fn members(&self) -> &[Guard] {
        self.guards.members()
    }

    /// Returns the earliest local deadline of all members. Once any member is lost, this is the clock's origin.
    pub(super) fn local_deadline(&self) -> Instant {
        let all = self.members().iter().map(Guard::local_deadline);
        all.min().unwrap_or(Instant::ORIGIN)
    }

    /// Waits until any member is lost.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub(super) async fn lost(&self) -> Lost {
        match &self.guards {
            Guards::One(guard) => guard.lost().await,
            Guards::Several(guards) => guards.lost().await,
        }
    }

    /// Returns the quoted keys, separated by commas: `"a", "b"`.
    pub(super) fn names(&self) -> String {
        quoted(self.members().iter().map(Guard::key))
    }

    /// Returns the words of the grant: `acquired "k" after 12ms, with token 7`.
    pub(super) fn words_of_the_grant(&self) -> String {
        let tokens = self.members().iter().filter_map(Guard::token);
        let tokens: Vec<String> = tokens.map(|token| token.to_string()).collect();
        let with = match tokens.as_slice() {
            [] => String::new(),
            [token] => format!(", with token {token}"),
            _ => format!(", with tokens {}", tokens.join(", ")),
        };
        let waited = Duration::from_millis(output::ms(self.waited));
        format!("acquired {} after {waited:?}{with}", self.names())
    }

    /// Returns the words of a loss. If the store was out of reach, they end with the reason.
    pub(super) fn words_of(&self, lost: &Lost) -> String {
        match (&lost.cause, self.renewal_error()) {
            (LostCause::Unreachable, Some(why)) => format!("{lost}: {why}"),
            _ => lost.to_string(),
        }
    }

    /// Returns the reason why the last renewal has failed, without the advice to try again: the client does so.
    pub(super) fn renewal_error(&self) -> Option<String> {
        let error = self.members().iter().find_map(Guard::renewal_error)?;
        Some(error.to_string().replace(": try again", "").replace('\n', " "))
    }

    /// Describes the lock for the event `acquired`.
    pub(super) fn described(&self, profile: &Profile) -> output::Acquired {
        let member = |guard: &Guard| output::Member {
            key: guard.key().to_string(),
            claim: guard.claim().id.to_string(),
            token: guard.token().map(u64::from),
        };
        let mode = self
            .members()
            .first()
            .map_or("exclusive", |guard| super::inspect::mode(guard.mode()));
        let has_limit = matches!(profile.liveness, Liveness::Lease(_));
        output::Acquired::new(
            self.members().iter().map(member).collect(),
            mode,
            has_limit.then_some(output::ms(self.lease)),
            output::ms(self.local_deadline() - now()),
            output::ms(self.waited),
            profile.store.to_owned(),
        )
    }

    /// Releases the lock. Waits for the store's confirmation for at most what is left of the lease, or 5 s.
    pub(super) async fn release(self) -> Release {
        let unlocked = match self.guards {
            Guards::One(guard) => guard.unlock().await,
            Guards::Several(guards) => guards.unlock().await,
        };
        let what = "the store has not confirmed the release; the lock ends with its lease";
        match unlocked {
            Ok(()) => Release::Confirmed,
            Err(Error::Lost(lost)) => Release::WasLost(*lost),
            Err(error) => Release::Unconfirmed(Failure::of(what, &error)),
        }
    }
}
