//! Runs the contract's conformance suite on quorums of three real Redis servers, of which all or all but one answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Instant, SystemClock};
use tenure_quorum::{Config, Quorum};
use tenure_redis::{Layout, RedisStore, StoreUrl};
use tenure_servers::{Data, Redis, SteppedClock};
use tenure_testkit::Subject;

/// The options of a server that keeps its data when a case restarts it.
const OPTIONS: [&str; 6] = ["--save", "", "--appendonly", "yes", "--appendfsync", "no"];

/// The system's clock plus the time by which the suite has moved it.
#[derive(Clone, Debug, Default)]
struct OffsetClock(Arc<Mutex<Duration>>);

impl Clock for OffsetClock {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.0.lock()
    }
}

/// Three servers, on clocks that the suite advances together. The last `dead` ones do not run.
struct Servers {
    list: Arc<Mutex<Vec<Redis>>>,
    dead: usize,
    layout: Layout,
    clock: OffsetClock,
}

impl Servers {
    fn start(dead: usize, layout: Layout) -> Self {
        let server = |number| {
            let clock = SteppedClock::new().expect("a clock that steps can be made");
            let mut server = Redis::start_with(&OPTIONS, Some(clock)).expect("redis-server starts");
            if number >= 3 - dead {
                server.process().kill();
            }
            server
        };
        Servers {
            list: Arc::new(Mutex::new((0..3).map(server).collect())),
            dead,
            layout,
            clock: OffsetClock::default(),
        }
    }

    fn config(&self, server: &Redis) -> Result<tenure_redis::Config, BackendError> {
        let url = StoreUrl::parse(&server.url()).expect("a URL");
        let config = tenure_redis::Config::from_url(&url)?.layout(self.layout.clone());
        Ok(config.clock(Arc::new(self.clock.clone())))
    }
}

impl Subject for Servers {
    /// The servers' leases end at slightly different times. A poll in between gets the grants of a minority only, and
    /// withdraws its claim.
    fn may_end_waiting_claims(&self) -> bool {
        true
    }

    fn client(&self) -> Call<Arc<dyn Backend>> {
        let configs: Vec<_> = self
            .list
            .lock()
            .iter()
            .map(|server| self.config(server))
            .collect();
        let alive = configs.len() - self.dead;
        Call::new(async move {
            let mut members: Vec<Arc<dyn Backend>> = Vec::new();
            for config in configs {
                members.push(match members.len() < alive {
                    true => RedisStore::connect(config?).await?,
                    false => RedisStore::connect_later(config?)?,
                });
            }
            // On a busy machine a server may take longer than the default of 500 ms. A late vote can end a claim.
            let config = Config::default().member_timeout(Duration::from_secs(10));
            Ok(Quorum::new(members, config)? as Arc<dyn Backend>)
        })
    }

    fn passes_without_sleep(&self) -> bool {
        true
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // Rounded up, because the servers' clocks move in whole milliseconds.
        let time = Duration::from_millis(time.as_micros().div_ceil(1000).try_into().expect("a short time"));
        for server in self.list.lock().iter() {
            let clock = server.clock().expect("it steps");
            clock
                .step_ms(time.as_millis().try_into().expect("a short time"))
                .expect("the clock steps");
        }
        *self.clock.0.lock() += time;
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        let (list, dead) = (self.list.clone(), self.dead);
        Some(Call::new(async move {
            for server in &mut list.lock()[..3 - dead] {
                server.restart(Data::Kept).expect("the server starts again");
            }
            Ok(())
        }))
    }
}

mod of_three_in_layout_plain {
    async fn subject() -> impl tenure_testkit::Subject {
        super::Servers::start(0, tenure_redis::Layout::Plain)
    }

    tenure_testkit::conformance!(subject);
}

mod of_three_with_one_dead_in_layout_redisson {
    async fn subject() -> impl tenure_testkit::Subject {
        super::Servers::start(1, tenure_redis::Layout::Redisson)
    }

    tenure_testkit::conformance!(subject);
}
