//! What `run` and `hold` lock: from options to a held lock of one key or of several.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant as Stopwatch};

use tenure::backend::Liveness;
use tenure::{
    Acquire, ClaimRef, Client, Error, Guard, Instant, Leader, LockKey, Lost, Member, Multi, MultiGuard,
    Mutex, Profile, RwLock, Semaphore,
};

use super::holder::HolderSearch;
use super::store::{Chosen, key};
use crate::args::{Kind, LockArgs, Wait};
use crate::output;
use crate::words::Failure;

/// How long the release of a lock is tried at the least: belief ends before the lease.
const ONE_CALL: Duration = Duration::from_millis(100);
/// How long it is tried at the most.
const RELEASE: Duration = Duration::from_secs(5);
/// The same for a lock of which nothing is left: how it was lost is to be told.
const LOST_RELEASE: Duration = Duration::from_secs(1);

/// A lock that is wanted, of keys that could be keys.
pub(super) struct Wanted<'a> {
    args: &'a LockArgs,
    keys: Vec<LockKey>,
    /// The claim that waits, once the lock was not granted at once.
    waiting: Arc<OnceLock<ClaimRef>>,
}

/// A lock that is held.
pub(super) struct Held {
    guards: Guards,
    /// The lease that the store gives.
    pub(super) lease: Duration,
    /// How long it was waited for.
    pub(super) waited: Duration,
}

enum Guards {
    One(Guard),
    Several(MultiGuard),
}

/// How an attempt ended that did not fail.
pub(super) enum Outcome {
    Held(Held),
    /// `--no-wait`, and somebody else has it.
    Busy,
    /// `--wait` is over.
    Timeout,
}

/// How a release ended.
pub(super) enum Release {
    Confirmed,
    /// It had been lost before.
    WasLost(Lost),
    /// The store has not confirmed it.
    Unconfirmed(Failure),
}

impl<'a> Wanted<'a> {
    pub(super) fn of(args: &'a LockArgs) -> Result<Wanted<'a>, Failure> {
        let keys: Result<_, _> = args.keys().into_iter().map(key).collect();
        Ok(Wanted {
            args,
            keys: keys?,
            waiting: Arc::default(),
        })
    }

    /// The keys, in words: `"a", "b"`.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
        names.join(", ")
    }

    /// The same where one of them could not be had: which one, the library does not say.
    pub(super) fn one_of_names(&self) -> String {
        match self.keys.as_slice() {
            [_] => self.names(),
            _ => format!("one of {}", self.names()),
        }
    }

    /// Connects as a client that bears the label.
    pub(super) async fn connect(&self, store: &Chosen) -> Result<Client, Failure> {
        store.connect(self.args.label.as_deref()).await
    }

    /// The lease that the store gives.
    pub(super) fn lease(&self, client: &Client) -> Duration {
        rounded(self.args.lease, client.profile())
    }

    /// A search for the holder of this lock.
    pub(super) fn holder<'c>(&self, client: &'c Client) -> HolderSearch<'c> {
        HolderSearch::new(client, &self.keys, self.waiting.clone())
    }

    /// Waits for the lock as long as the options say. `max_hold` is where the claim itself is capped.
    ///
    /// # Cancel safety
    /// Dropped, it withdraws; closing the client waits for that.
    pub(super) async fn acquire(
        &self,
        client: &Client,
        max_hold: Option<Duration>,
        on_waiting: impl FnOnce(&ClaimRef) + Send + 'static,
    ) -> Result<Outcome, Failure> {
        let waiting = self.waiting.clone();
        let on_waiting = move |claim: &ClaimRef| {
            // Called once for each attempt, and there is only one.
            let _ = waiting.set(claim.clone());
            on_waiting(claim);
        };
        let lease = self.lease(client);
        let face = |key| Face::of(client, key, self.args.kind(), lease, max_hold);
        let (began, wait) = (Stopwatch::now(), self.args.wait());
        let taken = if let [key] = self.keys.as_slice() {
            let guard = face(key).take(wait, on_waiting).await;
            guard.map(|guard| guard.map(Guards::One))
        } else {
            let multi = tenure::multi(self.keys.iter().map(|key| face(key).member()));
            let guards = several(&multi, wait, on_waiting).await;
            guards.map(|guards| guards.map(Guards::Several))
        };
        match taken {
            Ok(Some(guards)) => Ok(Outcome::Held(Held {
                guards,
                lease,
                waited: began.elapsed(),
            })),
            Ok(None) => Ok(Outcome::Busy),
            Err(Error::Timeout) => Ok(Outcome::Timeout),
            Err(error) => Err(Failure::of(format!("cannot lock {}", self.names()), &error)),
        }
    }
}

/// A lease outside the store's limits is rounded to them.
pub(super) fn rounded(lease: Duration, profile: &Profile) -> Duration {
    let limits = &profile.limits;
    lease.min(limits.max_lease).max(limits.min_lease)
}

/// One key with everything that the options say of it.
enum Face {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, NonZeroU32),
}

/// The options that all kinds share.
macro_rules! dressed {
    ($face:expr, $lease:expr, $max_hold:expr) => {{
        let face = $face.lease($lease);
        match $max_hold {
            Some(time) => face.max_hold(time),
            None => face,
        }
    }};
}

impl Face {
    fn of(client: &Client, key: &LockKey, kind: Kind, lease: Duration, max_hold: Option<Duration>) -> Face {
        match kind {
            Kind::Mutex { fair } => {
                let mutex = dressed!(client.mutex(key.as_str()), lease, max_hold);
                Face::Mutex(if fair { mutex.fair() } else { mutex })
            }
            Kind::Read => Face::Read(dressed!(client.rwlock(key.as_str()), lease, max_hold)),
            Kind::Write => Face::Write(dressed!(client.rwlock(key.as_str()), lease, max_hold)),
            Kind::Permits { take, of } => {
                let semaphore = client.semaphore(key.as_str(), of.get());
                Face::Permits(dressed!(semaphore, lease, max_hold), take)
            }
        }
    }

    fn member(&self) -> Member {
        match self {
            Face::Mutex(mutex) => mutex.into(),
            Face::Read(lock) => Member::read(lock),
            Face::Write(lock) => Member::write(lock),
            Face::Permits(semaphore, take) => Member::permits(semaphore, take.get()),
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
            Face::Mutex(mutex) => mutex.lock(),
            Face::Read(lock) => lock.read(),
            Face::Write(lock) => lock.write(),
            Face::Permits(semaphore, take) => semaphore.acquire_many(take.get()),
        }
    }

    fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        match self {
            Face::Mutex(mutex) => mutex.lock_within(limit),
            Face::Read(lock) => lock.read_within(limit),
            Face::Write(lock) => lock.write_within(limit),
            Face::Permits(semaphore, take) => semaphore.acquire_many_within(take.get(), limit),
        }
    }

    fn try_lock(&self) -> Acquire<Option<Guard>> {
        match self {
            Face::Mutex(mutex) => mutex.try_lock(),
            Face::Read(lock) => lock.try_read(),
            Face::Write(lock) => lock.try_write(),
            Face::Permits(semaphore, take) => semaphore.try_acquire_many(take.get()),
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

impl Held {
    /// The lock of a leader that was elected after waiting so long.
    pub(super) fn by(leader: Leader, lease: Duration, waited: Duration) -> Held {
        Held {
            guards: Guards::One(leader.into()),
            lease,
            waited,
        }
    }

    /// The locks it is made of, in the order in which their keys were named.
    pub(super) fn members(&self) -> &[Guard] {
        match &self.guards {
            Guards::One(guard) => std::slice::from_ref(guard),
            Guards::Several(guards) => guards.members(),
        }
    }

    /// Until when all of it is believed to be held unless renewals come; the origin of time once any of it is lost.
    pub(super) fn believe_until(&self) -> Instant {
        let all = self.members().iter().map(Guard::believe_until);
        all.min().unwrap_or(Instant::ORIGIN)
    }

    /// Waits until any of it is lost.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub(super) async fn lost(&self) -> Lost {
        match &self.guards {
            Guards::One(guard) => guard.lost().await,
            Guards::Several(guards) => guards.lost().await,
        }
    }

    /// How it is described to programs.
    pub(super) fn described(&self, profile: &Profile) -> output::Acquired {
        let member = |guard: &Guard| output::Member {
            key: guard.key().to_string(),
            claim: guard.claim().id.to_string(),
            token: guard.token().map(u64::from),
        };
        let mode = self
            .members()
            .first()
            .map_or("exclusive", |guard| super::look::mode(guard.mode()));
        let has_limit = matches!(profile.liveness, Liveness::Lease(_));
        output::Acquired::new(
            self.members().iter().map(member).collect(),
            mode,
            has_limit.then_some(output::ms(self.lease)),
            output::ms(self.waited),
            profile.store.to_owned(),
        )
    }

    /// Gives it back, and tries until that is confirmed or it would have ended by itself.
    pub(super) async fn release(self) -> Release {
        let limit = release_limit(self.members().iter().map(Guard::remaining));
        let unlocked = async {
            match self.guards {
                Guards::One(guard) => guard.unlock().await,
                Guards::Several(guards) => guards.unlock().await,
            }
        };
        let what = "the store has not confirmed the release; the lock ends with its lease";
        match tokio::time::timeout(limit, unlocked).await {
            Ok(Ok(())) => Release::Confirmed,
            Ok(Err(Error::Lost(lost))) => Release::WasLost(lost),
            Ok(Err(error)) => Release::Unconfirmed(Failure::of(what, &error)),
            Err(_) => Release::Unconfirmed(Failure::silence(what)),
        }
    }
}

/// How long a release is tried of members that have so much left of their leases: until the last would have ended by itself.
fn release_limit(left: impl Iterator<Item = Duration>) -> Duration {
    match left.max().unwrap_or_default() {
        Duration::ZERO => LOST_RELEASE,
        left => left.clamp(ONE_CALL, RELEASE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_tried_for_what_is_left_of_the_lease_and_no_longer_than_5_s() {
        for (left_ms, limit_ms) in [
            (&[300][..], 300),
            (&[3], 100),
            (&[2_000], 2_000),
            (&[20_000], 5_000),
            // Others of a multi-lock are given back though one was lost.
            (&[0, 700], 700),
            (&[3_000, 400], 3_000),
            (&[0], 1_000),
        ] {
            let left = left_ms.iter().copied().map(Duration::from_millis);
            assert_eq!(
                release_limit(left),
                Duration::from_millis(limit_ms),
                "{left_ms:?}"
            );
        }
    }
}
