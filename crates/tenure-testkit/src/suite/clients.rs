//! Methods of a fixture that make clients, or use one to check that the store refuses a mode.

use std::sync::Arc;

use tenure_backend::{Backend, Effect, Fairness, Fault, Liveness, Mode};

use super::client::TestClient;
use super::fixture::{Fixture, connect};

impl Fixture {
    /// Creates a client.
    pub async fn client(&self) -> TestClient {
        self.client_of(connect(&*self.subject).await)
    }

    /// Creates two clients.
    pub async fn two(&self) -> [TestClient; 2] {
        [self.client().await, self.client().await]
    }

    /// Creates three clients.
    pub async fn three(&self) -> [TestClient; 3] {
        [self.client().await, self.client().await, self.client().await]
    }

    /// Creates a client on this connection.
    pub(crate) fn client_of(&self, backend: Arc<dyn Backend>) -> TestClient {
        TestClient::new(self.clone(), (self.decorate)(backend))
    }

    /// Returns true if the profile lacks `mode`. In that case, asserts that the store refuses `mode` without effect.
    pub async fn refuses_mode(&self, mode: Mode) -> bool {
        self.refuses(mode, self.fairness(mode)).await
    }

    /// Returns true if the profile lacks `mode` with this fairness. In that case, asserts that the store refuses a
    /// claim of this mode and fairness without effect.
    pub async fn refuses(&self, mode: Mode, fairness: Fairness) -> bool {
        if self.profile.serves(mode, fairness) {
            return false;
        }
        let (client, key) = (self.client().await, self.key());
        let claim = client.claim_as(&key, mode, |claim| claim.fairness = fairness);
        let refusal = client
            .try_acquire(&claim)
            .await
            .expect_err("the store refuses what its profile does not list");
        assert_eq!(refusal.fault(), Fault::Unsupported, "{refusal}");
        assert_eq!(refusal.effect(), Effect::None, "{refusal}");
        assert_eq!(client.status(&key).await, None, "a refusal leaves nothing behind");
        true
    }

    /// Returns true if the store keeps a claim as long as its client's session lives, instead of for a lease. In that
    /// case, asserts that a claim outlives its lease.
    pub async fn lives_by_session(&self) -> bool {
        if self.profile.liveness != Liveness::Session {
            return false;
        }
        let ([holder, other], key) = (self.two().await, self.key());
        let claim = holder.claim_as(&key, Mode::Exclusive, |claim| claim.lease = self.short_lease());
        let grant = holder.granted(&claim).await;
        self.pass(grant.lease * 2).await;
        other.finds_busy(&key, Mode::Exclusive).await;
        true
    }
}
