//! The engine of one client: its services and its queues.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_backend::{Backend, Fault, Kind, LockKey, LockStatus, Page, Profile, Query, Reach};

use super::context::Context;
use super::hold::Hold;
use super::invalidations::HeldClaims;
use super::own_thread::OwnThread;
use super::queue::{PolicyLimits, Registry, Rules, SharedQueue};
use super::request::Options;
use super::services::Services;
use super::tasks::Tasks;
use super::timer::within;
use crate::error::Error;
use crate::settings::Settings;

pub(crate) type Queues = Registry<SharedQueue>;

pub(crate) struct Engine {
    pub(crate) services: Arc<Services>,
    /// Options of locks that have none of their own.
    pub(crate) options: Arc<Options>,
    queues: Arc<Queues>,
    rules: Arc<Rules>,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Arc<Self> {
        let context = Context::new(backend, settings);
        let tasks = Tasks::new(context.settings.own_thread);
        let profile = context.store.profile();
        let rules = Rules {
            local_handover: context.settings.local_handover,
            offer_window: context.settings.offer_window,
            policy: PolicyLimits {
                reports_waiters: profile.reports_waiters,
                is_on_network: profile.reach == Reach::Network,
            },
            releases: tasks.releases().clone(),
        };
        let options = Options::new(&context.settings);
        let queues = Arc::new(Queues::default());
        let held = HeldInQueues(Arc::downgrade(&queues));
        let weak = Arc::downgrade(&queues);
        // Called if the client's runtime ends before the client. Also ends the waits of callers on other runtimes,
        // because no task is left that polls, renews or releases for them.
        let end_waiters = move || {
            for queue in weak.upgrade().iter().flat_map(|queues| queues.close()) {
                queue.lose_all();
            }
        };
        Arc::new(Engine {
            services: Services::new(context, tasks, end_waiters, held),
            options: Arc::new(options),
            queues,
            rules: Arc::new(rules),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.services.context
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.services.tasks
    }

    pub(crate) fn profile(&self) -> &Profile {
        self.context().store.profile()
    }

    pub(crate) async fn inspect(&self, query: Query) -> Result<Page<LockStatus>, Error> {
        Ok(self.context().store.backend().inspect(query).await?)
    }

    pub(crate) fn settle_on(&self, thread: OwnThread) {
        self.services.tasks.settle_on(thread);
    }

    pub(crate) fn queue(&self, key: LockKey, kind: Kind) -> Arc<SharedQueue> {
        SharedQueue::get(&self.queues, &self.services, &self.rules, key, kind)
    }

    /// The client's queues. They outlive the client for as long as a handle or a guard does.
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.queues
    }

    /// Releases all claims, except those that stay in the store for `at_least`. Waits up to `limit` until the store
    /// has confirmed that, and disconnects.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        let services = &self.services;
        services.tasks.shut();
        services.releaser.adopt_all();
        let mut queues = self.queues.close();
        // Sorted, so that tests with a seed are reproducible.
        queues.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        for release in queues.iter().flat_map(SharedQueue::close) {
            services.releaser.send_later(release);
        }
        drop(queues);
        let (context, tasks) = (self.context().clone(), self.tasks().clone());
        let settle = async {
            tasks.settled().await;
            let closed = context.store.backend().close().await;
            tasks.stop();
            match closed {
                Err(error) if error.fault() != Fault::Closed => Err(error.into()),
                _ => Ok(()),
            }
        };
        within(&tasks, &*context.clock, limit, settle)
            .await
            .unwrap_or_else(|| Err(Error::CloseTimeout(services.releaser.last_error())))
    }
}

/// The claims that a client's queues hold.
struct HeldInQueues(Weak<Queues>);

impl HeldClaims for HeldInQueues {
    fn on_key(&self, key: &LockKey) -> Vec<Arc<Hold>> {
        let queues = self.0.upgrade().map(|queues| queues.of_key(key));
        let queues = queues.iter().flatten().filter(|queue| queue.key == *key);
        queues.flat_map(|queue| queue.watched()).collect()
    }

    fn check_kept(&self) {
        for queue in self.0.upgrade().iter().flat_map(|queues| queues.all()) {
            queue.check_kept();
        }
    }
}

impl Queues {
    /// Asks the store about each claim that this client holds on the key, and informs the guards.
    pub(crate) fn verify_holds(&self, key: &LockKey) {
        for queue in self.of_key(key).iter().filter(|queue| queue.key == *key) {
            queue.verify_all();
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("id", &self.context().id)
            .finish_non_exhaustive()
    }
}
