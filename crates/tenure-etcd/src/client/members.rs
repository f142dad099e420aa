//! The members of the cluster: which one the client talks to, and the attempts to connect to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tenure_backend::{BackendError, Fault};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::dial::Dialer;
use super::member::Member;
use crate::config::Config;
use crate::error::{invalid, not_connected};

/// The members of a cluster, and the one that requests go to.
pub(super) struct Members {
    pub(super) config: Config,
    dialer: Dialer,
    /// Number of hosts that were tried. The next one is at this index of the list, counted round.
    tried: AtomicUsize,
    /// Number of attempts to connect that have ended.
    attempts: AtomicU64,
    closed: AtomicBool,
    /// The member that requests go to, or why the last attempt found none. Locked during an attempt.
    current: Mutex<Option<Result<Arc<Member>, BackendError>>>,
}

impl Members {
    pub(super) fn new(config: Config) -> Result<Self, BackendError> {
        Ok(Members {
            dialer: Dialer::new(&config)?,
            config,
            tried: AtomicUsize::new(0),
            attempts: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            current: Mutex::default(),
        })
    }

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
            let opened = timeout(limit, Member::connect(&self.dialer, &self.config, host)).await;
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

    /// Refuses further requests. Those in flight go on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
