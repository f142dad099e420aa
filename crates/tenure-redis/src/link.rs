//! The way to the server: one connection for all calls, replaced by another when it breaks.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{BackendError, Wakes};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::dial::Dialer;
use crate::error;
use crate::wire::Wire;

/// The pauses between attempts to replace a connection, each twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    pub(crate) dialer: Dialer,
    state: Arc<Mutex<State>>,
}

struct State {
    wire: Option<Arc<Wire>>,
    /// The attempt to connect that is under way.
    attempt: Option<watch::Receiver<Attempt>>,
    closed: bool,
    /// Told when a connection has replaced another.
    moved: watch::Sender<()>,
}

/// How an attempt has ended, if it has.
type Attempt = Option<Result<Arc<Wire>, BackendError>>;

impl Link {
    /// Connects for the first time.
    pub(crate) async fn open(dialer: Dialer) -> Result<Self, BackendError> {
        let wire = Wire::open(&dialer).await?;
        let ended = wire.ended();
        let state = State {
            wire: Some(wire),
            attempt: None,
            closed: false,
            moved: watch::Sender::new(()),
        };
        let state = Arc::new(Mutex::new(state));
        tokio::spawn(replace(ended, dialer.clone(), Arc::downgrade(&state)));
        Ok(Link { dialer, state })
    }

    /// The connection, or another if it has broken.
    ///
    /// Connecting is a task of its own: whoever asked first may not be polled any more, and the others depend on it.
    pub(crate) async fn wire(&self) -> Result<Arc<Wire>, BackendError> {
        self.dialer.check_process()?;
        let mut attempt = match self.present()? {
            Present::Wire(wire) => return Ok(wire),
            Present::Attempt(attempt) => attempt,
        };
        match attempt.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(ended)) => ended.clone(),
            _ => Err(error::abandoned()),
        }
    }

    /// Gives the connection up. What is under way on it is still answered.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        (state.closed, state.wire) = (true, None);
    }

    /// Changes whenever a connection has replaced another: the server's name may lead elsewhere by then.
    pub(crate) fn moves(&self) -> watch::Receiver<()> {
        self.state.lock().moved.subscribe()
    }

    /// Wakes whenever a connection has replaced another.
    pub(crate) fn reconnects(&self) -> Wakes {
        Wakes::new(stream::unfold(self.moves(), async |mut moves| {
            moves.changed().await.ok().map(|()| ((), moves))
        }))
    }

    fn present(&self) -> Result<Present, BackendError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BackendError::closed());
        }
        if let Some(wire) = state.wire.as_ref().filter(|wire| !wire.is_broken()) {
            return Ok(Present::Wire(wire.clone()));
        }
        state.wire = None;
        // One whose task has ended unfinished, with its runtime, is none.
        if let Some(attempt) = state.attempt.as_ref().filter(|one| one.has_changed().is_ok()) {
            return Ok(Present::Attempt(attempt.clone()));
        }
        let (tell, attempt) = watch::channel(None);
        state.attempt = Some(attempt.clone());
        tokio::spawn(connect(self.dialer.clone(), self.state.clone(), tell));
        Ok(Present::Attempt(attempt))
    }
}

enum Present {
    Wire(Arc<Wire>),
    Attempt(watch::Receiver<Attempt>),
}

async fn connect(dialer: Dialer, shared: Arc<Mutex<State>>, tell: watch::Sender<Attempt>) {
    let opened = Wire::open(&dialer).await;
    let mut state = shared.lock();
    state.attempt = None;
    let ended = match opened {
        Ok(_) if state.closed => Err(BackendError::closed()),
        Ok(wire) => {
            tokio::spawn(replace(wire.ended(), dialer, Arc::downgrade(&shared)));
            state.wire = Some(wire.clone());
            state.moved.send_replace(());
            Ok(wire)
        }
        Err(failure) => Err(failure),
    };
    tell.send_replace(Some(ended));
}

/// Replaces a connection when it has ended, though nothing is asked for: what is held is renewed over the next one. Tries
/// again until the server can be reached or refuses us.
async fn replace(ended: impl Future<Output = ()>, dialer: Dialer, state: Weak<Mutex<State>>) {
    ended.await;
    let mut pause = FIRST_PAUSE;
    while let Some(state) = state.upgrade() {
        let dialer = dialer.clone();
        match (Link { dialer, state }).wire().await {
            Err(error) if error.is_transient() => {}
            Ok(_) | Err(_) => return,
        }
        sleep(pause).await;
        pause = (2 * pause).min(LAST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use tenure_backend::{Effect, Fault};
    use tenure_endpoint::StoreUrl;
    use tenure_servers::Redis;

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn a_forked_child_is_refused() {
        let server = Redis::start().expect("redis-server starts");
        let url = StoreUrl::parse(&format!("redis://{}", server.address())).expect("a URL");
        let config = Config::from_url(&url).expect("it makes sense");
        let mut link = Link::open(Dialer::new(config).expect("no TLS"))
            .await
            .expect("the server answers");
        link.wire().await.expect("the parent is served");
        // What a child of the process that connected finds.
        link.dialer.process = std::process::id() + 1;
        let refusal = link.wire().await.map(drop).expect_err("a child is not");
        assert_eq!((refusal.fault(), refusal.effect()), (Fault::Closed, Effect::None));
        assert!(refusal.to_string().contains("after a fork"), "{refusal}");
    }
}
