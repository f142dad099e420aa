//! The members of the cluster: which one the client talks to, and the attempts to connect to others.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_backend::{BackendError, Fault};
use tokio::time::timeout;

use super::calls::Client;
use super::member::Member;
use crate::error::{invalid, not_connected};

impl Client {
    /// Returns the member that requests go to. Connects if there is none; callers that wait meanwhile share the outcome.
    /// If the caller that connects is dropped, the next one goes on with the next host.
    pub(super) async fn current(&self) -> Result<Arc<Member>, BackendError> {
        let began = self.attempts.load(Ordering::Relaxed);
        let mut current = self.current.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(BackendError::closed());
        }
        match &*current {
            Some(Ok(member)) if !member.is_left() => return Ok(member.clone()),
            Some(Err(error)) if self.attempts.load(Ordering::Relaxed) > began => return Err(error.clone()),
            _ => {}
        }
        let connected = self.connect().await.map(Arc::new);
        self.attempts.fetch_add(1, Ordering::Relaxed);
        *current = Some(connected.clone());
        connected
    }

    /// Tries each host in turn until one answers.
    async fn connect(&self) -> Result<Member, BackendError> {
        let hosts = &self.config.hosts;
        // A silent member must leave time for the others.
        let limit = self.config.connect_timeout / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut failed: Option<BackendError> = None;
        for _ in hosts {
            let host = &hosts[self.tried.fetch_add(1, Ordering::Relaxed) % hosts.len()];
            let opened = timeout(limit, Member::connect(self.tls.as_ref(), &self.config, host)).await;
            match opened.unwrap_or_else(|_| Err(not_connected(host, limit))) {
                Ok(member) => return Ok(member),
                // A wrong password would be refused everywhere, and repeating it may lock the user out.
                Err(error) if error.fault() == Fault::Denied => return Err(error),
                // If one member may answer later, the failure is transient, whatever the others say.
                Err(error) if error.is_transient() => failed = Some(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| invalid("the URL names no host")))
    }
}
