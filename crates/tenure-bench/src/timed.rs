//! A store in memory whose renewals are timed: what the watchdog takes is told from what its store takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::backend::{
    Backend, Batch, Call, Claim, Clock, Departure, Each, Finding, Instant, LockStatus, Page, Profile, Query,
    Released, Renewal, Renewed, Standing, Wakes,
};
use tenure_memory::Memory;

/// Passes everything on. Its renewals are carried out when they are asked for, as those of memory are.
#[derive(Debug)]
pub(crate) struct Timed {
    store: Arc<Memory>,
    nanos: AtomicU64,
}

impl Timed {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Timed {
            store: Memory::new(),
            nanos: AtomicU64::new(0),
        })
    }

    /// The processor's time that renewals have taken so far.
    pub(crate) fn renewals(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// What this thread has run.
fn run_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

impl Backend for Timed {
    fn profile(&self) -> &Profile {
        self.store.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        self.store.clone().acquire(claim, place_by)
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let began = run_time();
        let renewed = self.store.clone().renew(batch);
        self.nanos.fetch_add(run_time() - began, Ordering::Relaxed);
        renewed
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        self.store.clone().release(batch)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        self.store.clone().watch(claim)
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.store.clone().inspect(query)
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.store.clone().examine()
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.store.clone().close()
    }
}
