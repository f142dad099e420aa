//! A waiter and a holder, each of Java or of Tenure, with the same methods for both.

use std::time::Duration;

use tenure::{Error, Guard, Mutex};
use tenure_interop::{Lock, Reply};
use tokio::task::JoinHandle;

use crate::fixture::within;

pub(crate) enum Waiter {
    Java(Lock, Reply<()>),
    Tenure(JoinHandle<Result<Guard, Error>>),
}

pub(crate) enum Holder {
    Java(Lock),
    Tenure(Guard),
}

impl Waiter {
    pub(crate) fn java(lock: Lock) -> Waiter {
        let reply = lock.lock();
        Waiter::Java(lock, reply)
    }

    pub(crate) fn tenure(mutex: Mutex) -> Waiter {
        Waiter::Tenure(tokio::spawn(mutex.lock()))
    }

    pub(crate) async fn holds_within(self, limit: Duration, who: &str) -> Holder {
        match self {
            Waiter::Java(lock, reply) => {
                within(limit, who, reply).await.unwrap();
                Holder::Java(lock)
            }
            Waiter::Tenure(task) => Holder::Tenure(within(limit, who, task).await.unwrap().unwrap()),
        }
    }
}

impl Holder {
    pub(crate) async fn unlock(self) {
        match self {
            Holder::Java(lock) => lock.unlock().await.unwrap(),
            Holder::Tenure(guard) => guard.unlock().await.unwrap(),
        }
    }
}
