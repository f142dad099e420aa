//! The members of the cluster: which one the client talks to, and the attempts to connect to others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_backend::BackendError;
use tenure_endpoint::{Refused, first_to_serve};

use super::calls::Client;
use super::member::Member;
use crate::error::not_connected;

impl Client {
    /// Returns the member that requests go to. Connects if there is none; callers that wait meanwhile share the outcome.
    /// If the caller that connects is dropped, the next one goes on with the next host.
    pub(super) async fn current(&self) -> Result<Arc<Member>, BackendError> {
        let attempt = self.attempts.begin();
        let mut current = self.current.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(BackendError::closed());
        }
        if let Some(member) = current.as_ref().filter(|member| !member.is_left()) {
            return Ok(member.clone());
        }
        let connected = attempt.make(self.connect()).await.map(Arc::new)?;
        *current = Some(connected.clone());
        Ok(connected)
    }

    /// Tries each host in turn until one answers.
    async fn connect(&self) -> Result<Member, BackendError> {
        let hosts = &self.config.hosts;
        let turns = hosts
            .iter()
            .map(|_| &hosts[self.tried.fetch_add(1, Ordering::Relaxed) % hosts.len()]);
        let open = async |host| Ok(Member::connect(&self.dialer, &self.config, host).await?);
        let served = first_to_serve(turns, self.config.connect_timeout, open, not_connected).await;
        served.map_err(Refused::into_error)
    }
}
