//! A crew: all workers of one client on one workload, wherever they run.
//! Not here: the two kinds of crews (`tasks`, `processes`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::Settings;

use crate::Fallible;
use crate::baton::Baton;
use crate::client::peers::{Rlock, Rslock};
use crate::client::polling::Polling;
use crate::client::statements::Statements;
use crate::client::tenure::Tenure;
use crate::client::tokio_mutex::TokioMutexes;
use crate::plan::{Client, Store, Workload};
use crate::processes::Processes;
use crate::site::Place;
use crate::tally::Round;
use crate::tasks::{Keys, Tasks, Team};

pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = Fallible<T>> + Send + 'a>>;

/// Idle between its rounds.
pub(crate) trait Crew: Send {
    fn round(&mut self, time: Duration) -> Soon<'_, Round>;

    fn dismiss(self: Box<Self>) -> Soon<'static, ()>;
}

/// Makes the crew of one client, who has this place to itself.
pub(crate) async fn hire(
    workload: Workload,
    client: Client,
    place: &Place,
    section: Duration,
) -> Fallible<Box<dyn Crew>> {
    if (client, place.store) == (Client::Bare, Store::Sqlite) {
        // The journal's mode is changed before several processes open the file.
        Statements::open(&place.lock_file())?;
    }
    let shape = workload.shape();
    let &[count] = shape.tasks else {
        return Ok(Box::new(
            Processes::start(workload, client, place, section).await?,
        ));
    };
    let keys = if shape.one_key {
        Keys::One(Arc::new(Baton::in_memory()))
    } else {
        Keys::Own
    };
    let team = Team {
        first: 0,
        count,
        keys,
        section,
        rest: Duration::ZERO,
    };
    hire_tasks(client, place, &team).await
}

/// The part of a crew that works in this process.
pub(crate) async fn hire_tasks(client: Client, place: &Place, team: &Team) -> Fallible<Box<dyn Crew>> {
    let url = &*place.url;
    let settings = Settings::default();
    Ok(match (client, place.store) {
        (Client::Tenure, _) => Box::new(Tasks::new(Tenure::connect(url, settings).await?, team)),
        (Client::TenureNoPassing, _) => {
            let settings = settings.passing(false);
            Box::new(Tasks::new(Tenure::connect(url, settings).await?, team))
        }
        (Client::Rslock, _) => Box::new(Tasks::new(Rslock::new(url), team)),
        (Client::Rlock, _) => Box::new(Tasks::new(Rlock::connect(url).await?, team)),
        (Client::Bare, Store::Memory) => Box::new(Tasks::new(TokioMutexes::default(), team)),
        (Client::Bare, Store::Sqlite) => Box::new(Tasks::new(Statements::open(&place.lock_file())?, team)),
        (Client::Bare, Store::Redis) => Box::new(Tasks::new(Polling::open(url).await?, team)),
    })
}
