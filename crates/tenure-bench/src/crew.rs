//! A crew: all workers of one client on one workload, wherever they run.
//! Not here: the two kinds of crews (`tasks`, `processes`).

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::Settings;

use crate::Fallible;
use crate::baton::Baton;
use crate::client::Locker as _;
use crate::client::statements::Statements;
use crate::client::tenure::{FILE, Tenure};
use crate::client::tokio_mutex::TokioMutexes;
use crate::plan::{Client, Store, Workload};
use crate::processes::Processes;
use crate::tally::Round;
use crate::tasks::{Keys, Tasks, Team};

pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = Fallible<T>> + Send + 'a>>;

/// Idle between its rounds.
pub(crate) trait Crew: Send {
    fn round(&mut self, time: Duration) -> Soon<'_, Round>;

    fn dismiss(self: Box<Self>) -> Soon<'static, ()>;
}

/// Makes the crew of one client. What it needs of files lies in `folder`, which is its own.
pub(crate) async fn hire(
    workload: Workload,
    store: Store,
    client: Client,
    folder: &Path,
    section: Duration,
) -> Fallible<Box<dyn Crew>> {
    prepare(store, folder).await?;
    let shape = workload.shape();
    if shape.processes > 1 {
        return Ok(Box::new(
            Processes::start(shape, store, client, folder, section).await?,
        ));
    }
    let keys = if shape.one_key {
        Keys::One(Arc::new(Baton::in_memory()))
    } else {
        Keys::Own
    };
    let team = Team {
        first: 0,
        count: shape.tasks,
        keys,
        section,
    };
    hire_tasks(store, client, folder, &team).await
}

/// The tables of a file store are made by the store itself, for the bare statements too.
async fn prepare(store: Store, folder: &Path) -> Fallible<()> {
    match store {
        Store::Memory => Ok(()),
        Store::Sqlite => {
            Tenure::connect(store, folder, Settings::default())
                .await?
                .close()
                .await
        }
    }
}

/// The part of a crew that works in this process.
pub(crate) async fn hire_tasks(
    store: Store,
    client: Client,
    folder: &Path,
    team: &Team,
) -> Fallible<Box<dyn Crew>> {
    let settings = Settings::default();
    Ok(match (client, store) {
        (Client::Tenure, _) => Box::new(Tasks::new(Tenure::connect(store, folder, settings).await?, team)),
        (Client::TenureNoPassing, _) => {
            let settings = settings.passing(false);
            Box::new(Tasks::new(Tenure::connect(store, folder, settings).await?, team))
        }
        (Client::Bare, Store::Memory) => Box::new(Tasks::new(TokioMutexes::default(), team)),
        (Client::Bare, Store::Sqlite) => Box::new(Tasks::new(Statements::open(&folder.join(FILE))?, team)),
    })
}
