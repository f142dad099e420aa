//! The session with the server: opened once, and replaced by another when its connection breaks.

use std::future::{Future, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{BackendError, Invalidation, Invalidations};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::connection::connect_error;
use crate::connection::dial::Dialer;
use crate::connection::session::Session;

/// Pause after the first failed attempt to replace a connection. Each pause is twice the one before, up to
/// `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The time after which a first connection begins no further attempt, although a replica is still being promoted.
const PROMOTION_LIMIT: Duration = Duration::from_secs(10);

/// Holds the current session, and replaces the session when its connection ends.
pub(crate) struct Link {
    pub(crate) dialer: Dialer,
    state: Arc<Mutex<State>>,
}

struct State {
    session: Option<Arc<Session>>,
    /// The attempt to connect that is in progress.
    attempt: Option<watch::Receiver<Attempt>>,
    closed: bool,
    /// The next connection counts as a replacement: another was open before, or `open_later` created the link.
    was_open: bool,
    /// The task that listens to sentinels. It ends with the link.
    follower: JoinSet<()>,
    /// Notified when a connection has replaced another, see `was_open`.
    replaced: watch::Sender<()>,
}

/// Result of an attempt to connect; `None` while it is in progress.
type Attempt = Option<Result<Arc<Session>, BackendError>>;

impl Link {
    /// Connects at once. Returns the error of a failed attempt, but tries again within `PROMOTION_LIMIT` if the error is
    /// transient and a replica was being promoted: an attempt that waits for the promotion may run out of its time.
    pub(crate) async fn open(dialer: Dialer) -> Result<Self, BackendError> {
        let link = Link::unopened(dialer);
        let sentinels = link.dialer.sentinels();
        let is_promoting = || sentinels.is_some_and(|sentinels| sentinels.promoting_until().is_some());
        let begun = Instant::now();
        loop {
            let was_promoting = is_promoting();
            let may_retry = begun.elapsed() < PROMOTION_LIMIT;
            match link.session().await {
                Err(error) if error.is_transient() && may_retry && (was_promoting || is_promoting()) => {}
                Err(error) => return Err(connect_error::of_first_attempt(error)),
                Ok(_) => return Ok(link),
            }
        }
    }

    /// Connects in the background, with retries. The first connection counts as a replacement.
    pub(crate) fn open_later(dialer: Dialer) -> Self {
        let link = Link::unopened(dialer);
        link.state.lock().was_open = true;
        let reconnecting = reconnect_at_end(ready(()), link.dialer.clone(), Arc::downgrade(&link.state));
        tokio::spawn(reconnecting);
        link
    }

    /// A link that connects at its first call.
    pub(crate) fn unopened(dialer: Dialer) -> Self {
        let state = State {
            session: None,
            attempt: None,
            closed: false,
            was_open: false,
            follower: JoinSet::new(),
            replaced: watch::Sender::new(()),
        };
        Link {
            dialer,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns the current session, or connects if there is none or its connection has broken.
    ///
    /// A separate task connects, because all callers wait for one attempt, and the caller that began it may stop
    /// polling.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, BackendError> {
        self.dialer.check_process()?;
        let mut attempt = match self.current()? {
            Current::Session(session) => return Ok(session),
            Current::Attempt(attempt) => attempt,
        };
        match attempt.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(ended)) => ended.clone(),
            _ => Err(connect_error::abandoned()),
        }
    }

    /// Drops the session and refuses further calls. Calls in flight still receive their replies.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        (state.closed, state.session) = (true, None);
        state.follower.abort_all();
    }

    /// Returns a channel that changes after each reconnect: the host name may lead to another server, which may lack
    /// claims of the one before.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.state.lock().replaced.subscribe()
    }

    fn current(&self) -> Result<Current, BackendError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BackendError::closed());
        }
        if let Some(session) = state.session.as_ref().filter(|session| !session.wire.is_broken()) {
            return Ok(Current::Session(session.clone()));
        }
        state.session = None;
        // If the attempt's task has ended with its runtime, its channel is closed and another attempt starts.
        if let Some(attempt) = state
            .attempt
            .as_ref()
            .filter(|attempt| attempt.has_changed().is_ok())
        {
            return Ok(Current::Attempt(attempt.clone()));
        }
        self.follow_sentinels(&mut state);
        let (done, attempt) = watch::channel(None);
        state.attempt = Some(attempt.clone());
        tokio::spawn(connect(self.dialer.clone(), self.state.clone(), done));
        Ok(Current::Attempt(attempt))
    }

    /// Starts the task that listens to the sentinels, unless it runs. It may have ended with its runtime.
    fn follow_sentinels(&self, state: &mut State) {
        while state.follower.try_join_next().is_some() {}
        if let Some(sentinels) = self.dialer.sentinels().cloned()
            && state.follower.is_empty()
        {
            state.follower.spawn(async move { sentinels.follow().await });
        }
    }
}

/// Reports at each replaced connection that all claims may be gone: the server behind the new one may have lost them.
pub(crate) fn all_at(replaced: watch::Receiver<()>) -> Invalidations {
    Invalidations::new(stream::unfold(replaced, async |mut replaced| {
        replaced
            .changed()
            .await
            .ok()
            .map(|()| (Invalidation::All, replaced))
    }))
}

enum Current {
    Session(Arc<Session>),
    Attempt(watch::Receiver<Attempt>),
}

async fn connect(dialer: Dialer, shared: Arc<Mutex<State>>, done: watch::Sender<Attempt>) {
    let opened = Session::open(&dialer).await;
    let mut state = shared.lock();
    state.attempt = None;
    let ended = match opened {
        Ok(_) if state.closed => Err(BackendError::closed()),
        Ok(session) => {
            let ended = session.wire.ended();
            tokio::spawn(reconnect_at_end(ended, dialer, Arc::downgrade(&shared)));
            state.session = Some(session.clone());
            if std::mem::replace(&mut state.was_open, true) {
                state.replaced.send_replace(());
            }
            Ok(session)
        }
        Err(failure) => Err(failure),
    };
    done.send_replace(Some(ended));
}

/// Replaces a connection as soon as it has ended, without waiting for a call: held claims are renewed over the new one.
/// Retries until an attempt succeeds or fails with a permanent error.
async fn reconnect_at_end(ended: impl Future<Output = ()>, dialer: Dialer, state: Weak<Mutex<State>>) {
    ended.await;
    let mut pause = FIRST_PAUSE;
    while let Some(state) = state.upgrade() {
        let link = Link {
            dialer: dialer.clone(),
            state,
        };
        // A server that drops packets leaves an attempt without an answer for seconds. Its slots may have moved to a
        // replica meanwhile.
        let ask_for_slots = async {
            loop {
                dialer.slots_may_have_moved();
                sleep(LAST_PAUSE).await;
            }
        };
        let opened = tokio::select! {
            opened = link.session() => opened,
            never = ask_for_slots => never,
        };
        match opened {
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
    async fn calling_after_a_fork_is_refused() {
        let server = Redis::start().expect("redis-server starts");
        let url = StoreUrl::parse(&format!("redis://{}", server.address())).expect("a URL");
        let config = Config::from_url(&url).expect("it makes sense");
        let mut link = Link::open(Dialer::new(config).expect("no TLS"))
            .await
            .expect("the server answers");
        link.session().await.expect("the parent is served");
        // Makes this process look like a child of the one that connected.
        link.dialer.process = std::process::id() + 1;
        let refusal = link.session().await.map(drop).expect_err("a child is not");
        assert_eq!((refusal.fault(), refusal.effect()), (Fault::Closed, Effect::None));
        assert!(refusal.to_string().contains("after a fork"), "{refusal}");
    }
}
