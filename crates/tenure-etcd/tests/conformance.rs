//! Runs the contract's conformance suite on a real etcd. Its clock cannot be moved, so time passes as it does.

mod fixture;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fixture::config;
use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Mode, Phase, RenewReply};
use tenure_etcd::EtcdStore;
use tenure_servers::{Data, Etcd, Proxy, Way};
use tenure_testkit::suite::{Fixture, run};
use tenure_testkit::{Link, SlowClient, Subject, suite};

/// A prefix of its own on a server that cases share.
#[derive(Clone)]
struct Case {
    server: Arc<Mutex<Etcd>>,
    prefix: String,
    /// Whether the case is alone on its server.
    restarts: bool,
}

impl Case {
    fn on(server: Arc<Mutex<Etcd>>, restarts: bool) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Case {
            server,
            prefix,
            restarts,
        }
    }

    fn url(&self) -> String {
        format!("{}/{}", self.server.lock().url(), self.prefix)
    }
}

/// A case on the server that ends with the last case that uses it.
async fn shared() -> impl Subject {
    static SERVER: Mutex<Weak<Mutex<Etcd>>> = Mutex::new(Weak::new());
    let mut shared = SERVER.lock();
    let server = shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Mutex::new(Etcd::start().expect("etcd starts")));
        *shared = Arc::downgrade(&started);
        started
    });
    Case::on(server, false)
}

/// A case on a server of its own, which it may restart.
async fn alone() -> impl Subject {
    Case::on(Arc::new(Mutex::new(Etcd::start().expect("etcd starts"))), true)
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        Call::new(EtcdStore::open(config(&self.url())))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // sleep: etcd's clock cannot be moved.
        Box::pin(tokio::time::sleep(time))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        let server = self.server.clone();
        self.restarts.then(|| {
            Call::new(async move {
                server.lock().restart(Data::Kept).expect("etcd starts again");
                Ok(())
            })
        })
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let (address, prefix) = (self.server.lock().address(), self.prefix.clone());
        Some(Call::new(async move {
            let proxy = Proxy::start(address).await.expect("a port is free");
            let url = format!("etcd://{}/{prefix}", proxy.address());
            let backend = EtcdStore::open(config(&url)).await?;
            let link = Arc::new(SlowProxy(proxy));
            Ok::<_, BackendError>(SlowClient { backend, link })
        }))
    }
}

#[derive(Debug)]
struct SlowProxy(Proxy);

impl Link for SlowProxy {
    fn delay(&self, requests: Duration, answers: Duration) {
        self.0.delay(Way::ToServer, requests);
        self.0.delay(Way::ToClient, answers);
    }
}

tenure_testkit::conformance!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, successor, refuse]
);

tenure_testkit::conformance_under_chaos!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, successor, refuse]
);

/// The cases of the group that do not raise tokens.
mod fence {
    use super::*;

    #[test]
    fn grants_have_tokens_if_the_profile_says_so() {
        run(shared, suite::fence::grants_have_tokens_if_the_profile_says_so);
    }

    #[test]
    fn tokens_rise_over_release() {
        run(shared, suite::fence::tokens_rise_over_release);
    }

    #[test]
    fn tokens_rise_over_expiry() {
        run(shared, suite::fence::tokens_rise_over_expiry);
    }

    #[test]
    fn tokens_rise_over_eviction() {
        run(shared, suite::fence::tokens_rise_over_eviction);
    }

    #[test]
    fn tokens_rise_over_a_restart() {
        run(alone, suite::fence::tokens_rise_over_a_restart);
    }

    #[test]
    fn tokens_rise_from_readers_to_writers_and_back() {
        run(shared, suite::fence::tokens_rise_from_readers_to_writers_and_back);
    }

    #[test]
    fn a_grant_reserves_the_requested_token_range() {
        run(shared, suite::fence::a_grant_reserves_the_requested_token_range);
    }

    /// Revisions cannot be raised.
    #[test]
    fn a_raise_is_refused_without_effect() {
        run(shared, async |fixture: Fixture| {
            let (client, key) = (fixture.client().await, fixture.key());
            let claim = client.claim(&key, Mode::Exclusive);
            let tokens = client.granted(&claim).await.tokens;
            let mut renewal = tenure_backend::RenewRequest::of(&claim);
            renewal.raise = tokens;
            match client.renewal_replies(vec![renewal]).await.pop() {
                Some(RenewReply::Unknown(error)) => assert_eq!(
                    (error.fault(), error.effect()),
                    (tenure_backend::Fault::Unsupported, tenure_backend::Effect::None)
                ),
                other => panic!("a raise must be refused, but is answered {other:?}"),
            }
            client.stays_alive(&claim, Phase::Granted).await;
        });
    }
}

#[test]
fn a_claim_survives_a_restart() {
    run(
        alone,
        suite::lease::a_claim_survives_a_restart_if_the_profile_says_so,
    );
}
