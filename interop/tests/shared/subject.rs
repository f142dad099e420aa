//! The kinds of locks of other projects, each with its counterpart in Tenure.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Client, Election, Error, Guard, Lock, Multi, MultiGuard};
use tenure_interop::Driver;

use super::fixture::Store;

/// A kind of lock of other projects, and the same kind of Tenure.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The name in the documentation.
    pub(crate) name: &'static str,
    /// The clients that offer this kind of lock.
    pub(crate) drivers: &'static [Driver],
    /// The beginning of the names of its tests: the server, if the program uses several.
    pub(crate) server: &'static str,
    /// The name in the drivers.
    pub(crate) kind: &'static str,
    /// Starts the store of a case. Returns `None` if `TENURE_SKIP` names its server.
    pub(crate) store: fn(&Subject) -> Option<Arc<dyn Store>>,
    /// The options of Tenure's URL.
    pub(crate) options: &'static str,
    /// The key of the tests.
    pub(crate) key: &'static str,
    /// Tenure's kind of lock.
    pub(crate) ours: Kind,
    /// The longest usual time between Tenure's unlock and the client's acquisition: by a wake-up, or by the client's
    /// polls.
    pub(crate) they_wake: Duration,
    /// The longest usual time between the client's unlock and Tenure's acquisition.
    pub(crate) we_wake: Duration,
    /// How the client renews what it holds.
    pub(crate) renewal: Renewal,
    /// Whether an owner of the client may hold the lock twice.
    pub(crate) is_reentrant: bool,
    /// The data in the store while the client holds, with ids of owners as `ID`.
    pub(crate) held: &'static [&'static str],
    /// The data while Tenure holds, if Tenure writes more.
    pub(crate) held_by_us: Option<&'static [&'static str]>,
    /// The data while a reader of either side holds, of a read-write lock.
    pub(crate) read: &'static [&'static str],
    /// The data after an unlock.
    pub(crate) left: &'static [&'static str],
}

/// Tenure's kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Multi,
    /// The leader of an election.
    Leader,
    /// The writers of a read-write lock.
    Write,
    /// The only permit of a semaphore.
    Permit,
}

/// How a client renews its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The client renews by itself.
    Watchdog,
    /// The client renews only when its user calls a method.
    ByHand,
    /// The client's locks have no lease.
    NoLease,
}

/// A lock of Tenure of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Ours {
    One(Lock),
    Several(Multi),
    Lead(Election),
}

/// A guard of any kind.
#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    Several(MultiGuard),
}

impl Subject {
    /// The beginning of the names of this kind's tests.
    pub(crate) fn path(&self) -> String {
        [self.server, self.kind].concat()
    }

    /// Tenure's lock on the subject's key.
    pub(crate) fn ours(&self, client: &Client) -> Ours {
        match self.ours {
            Kind::Mutex => Ours::One(client.mutex(self.key).into()),
            Kind::Fair => Ours::One(client.mutex(self.key).fair().into()),
            Kind::Write => Ours::One(client.rwlock(self.key).writer()),
            Kind::Permit => Ours::One(client.semaphore(self.key, 1).permits(1)),
            Kind::Leader => Ours::Lead(client.election(self.key).label("candidate")),
            Kind::Multi => Ours::Several(tenure::multi(self.key.split(',').map(|key| client.mutex(key)))),
        }
    }
}

impl Ours {
    pub(crate) async fn lock(&self) -> Result<Held, Error> {
        match self {
            Ours::One(lock) => lock.lock().await.map(Held::One),
            Ours::Several(multi) => multi.lock().await.map(Held::Several),
            Ours::Lead(election) => Ok(Held::One(election.campaign().await?.into())),
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        match self {
            Ours::One(lock) => Ok(lock.try_lock().await?.map(Held::One)),
            Ours::Several(multi) => Ok(multi.try_lock().await?.map(Held::Several)),
            Ours::Lead(election) => match election.campaign_within(Duration::ZERO).await {
                Ok(leader) => Ok(Some(Held::One(leader.into()))),
                Err(Error::Timeout) => Ok(None),
                Err(error) => Err(error),
            },
        }
    }
}

impl Held {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Held::One(guard) => guard.is_held(),
            Held::Several(guard) => guard.is_held(),
        }
    }

    pub(crate) async fn unlock(self) -> Result<(), Error> {
        match self {
            Held::One(guard) => guard.unlock().await,
            Held::Several(guard) => guard.unlock().await,
        }
    }
}
