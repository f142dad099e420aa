//! A store behind a proxy, whose calls can be held up on their way, and many calls at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{JoinAll, join_all};
use tenure_backend::{AcquireReply, Backend, BackendError, Call, Claim, Grant, LockKey, Mode};
use tenure_redis::RedisStore;
use tenure_servers::{Proxy, Way};
use tenure_testkit::suite::Client;

use super::calls::placed;
use super::look::{Stage, soon};
use super::server::Server;

/// A store whose calls can be held up on their way, and a client that names claims for it.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
    pub(crate) store: Arc<RedisStore>,
}

/// Calls that are under way.
pub(crate) type All = Pin<Box<JoinAll<Call<AcquireReply>>>>;

impl Scene {
    pub(crate) async fn new() -> Self {
        let server = Server::start();
        let (proxy, store) = server.behind_a_proxy(Duration::from_secs(1)).await;
        let stage = Stage::on(server).await;
        let client = stage.trial.client().await;
        stage.ask(&["CONFIG", "RESETSTAT"]);
        Scene {
            stage,
            client,
            proxy,
            store,
        }
    }

    pub(crate) fn key(&self) -> LockKey {
        self.stage.trial.key()
    }

    pub(crate) fn claims(&self, count: usize) -> Vec<Arc<Claim>> {
        let claims = (0..count).map(|_| self.client.claim(&self.key(), Mode::Exclusive));
        claims.collect()
    }

    /// Places a claim that is granted.
    pub(crate) async fn granted(&self, claim: &Arc<Claim>) -> Grant {
        match placed(&self.store, claim).await {
            Ok(AcquireReply::Granted(grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    /// What is answered to all of them, which are asked for at once, and travel together.
    pub(crate) async fn answers(&self, claims: &[Arc<Claim>]) -> Vec<Result<AcquireReply, BackendError>> {
        let asked = self.ask(claims).await;
        self.proxy.heal();
        soon(asked).await
    }

    /// Asks for all of them at once. The requests are held up: those that are not on their way yet travel together.
    pub(crate) async fn ask(&self, claims: &[Arc<Claim>]) -> All {
        self.ask_within(claims, |_| Duration::from_secs(5)).await
    }

    /// The same, each to be placed within a time of its own.
    pub(crate) async fn ask_within(&self, claims: &[Arc<Claim>], ahead: impl Fn(usize) -> Duration) -> All {
        self.proxy.hold(Way::ToServer);
        let now = self.client.now();
        let calls = claims
            .iter()
            .enumerate()
            .map(|(i, claim)| self.store.clone().acquire(claim.clone(), now + ahead(i)));
        let mut calls = Box::pin(join_all(calls));
        poll_fn(|cx| {
            assert!(calls.as_mut().poll(cx).is_pending(), "nobody is answered");
            Poll::Ready(())
        })
        .await;
        calls
    }
}
