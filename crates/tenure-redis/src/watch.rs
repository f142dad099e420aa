//! Wake-ups: one connection, subscribed to the channels of all claims that this client watches.
//!
//! Messages are hints and can be lost, so all waiters of a channel are woken after each new subscription to it.

mod registry;
mod subscriber;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tenure_backend::{
    BackendError, Claim, ClientId, Fairness, InvalidationQueue, Invalidations, LockKey, WakeSignal, Wakes,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::claims::names::{Owner, client_channel, owner_channel};
use crate::connection::dial::Dialer;
use crate::error::not_subscribed;
use registry::{Listener, Registry};
use subscriber::{Event, NotSubscribed, Subscriber};

/// Pause before the client subscribes again after a connection was lost or could not be opened.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Interval of the wake-ups that make waiters poll while their subscription is lost.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of pings, to find a dead connection: without messages, a waiter gets a free lock only at its next poll.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The most channels in one `SUBSCRIBE` or `UNSUBSCRIBE`.
const MAX_CHANNELS: usize = 500;

/// The waiters of this client and the task that subscribes for them.
pub(crate) struct Subscriptions {
    dialer: Dialer,
    registry: Arc<Registry>,
    task: Mutex<Task>,
    /// Changes when the connection for calls was replaced. Then the subscribed connection is replaced too, because the
    /// host name may lead to another server.
    replaced: watch::Receiver<()>,
}

/// The task that receives messages for all waiters.
enum Task {
    /// No claim was watched yet.
    None,
    Runs(JoinHandle<()>),
    /// The store was closed: no task is started again.
    Closed,
}

impl Subscriptions {
    pub(crate) fn new(dialer: Dialer, replaced: watch::Receiver<()>) -> Self {
        Subscriptions {
            dialer,
            registry: Arc::default(),
            task: Mutex::new(Task::None),
            replaced,
        }
    }

    /// Returns whether the server counts this client among the lock's subscribers, as far as the client knows.
    pub(crate) fn is_subscribed(&self, prefix: &str, key: &LockKey) -> bool {
        if self.registry.is_empty() {
            return false;
        }
        let channel = self.dialer.config.layout.channel(prefix, key);
        self.registry.is_subscribed(&channel)
    }

    /// Watches a claim. Returns once the server has confirmed the subscription, so later messages are received.
    pub(crate) async fn watch(&self, claim: &Claim) -> Result<Wakes, BackendError> {
        self.dialer.check_process()?;
        let layout = &self.dialer.config.layout;
        let name = match claim.fairness {
            Fairness::Unfair => {
                let scripts = layout.scripts().scripts_or_mutex(Some(claim.mode.kind()));
                layout.channel(scripts.channel, &claim.at.key)
            }
            Fairness::Fifo => owner_channel(&claim.at.key, &Owner::of(claim.at.id)),
        };
        let (confirmation, confirmed) = oneshot::channel();
        let (name, signal) = (Arc::<str>::from(name), WakeSignal::default());
        self.add(&name, Listener::Waiter(signal.clone()), Some(confirmation))?;
        let (registry, own) = (self.registry.clone(), Listener::Waiter(signal.clone()));
        let wakes = signal.wakes(move || registry.remove(&name, &own));
        match timeout(self.dialer.config.command_timeout, confirmed).await {
            Ok(Ok(())) => Ok(wakes),
            _ => Err(not_subscribed()),
        }
    }

    /// Subscribes a client to its evictions. The stream also reports that all its claims may be gone after each new
    /// subscription. Fails if the store was closed.
    pub(crate) fn invalidations(&self, client: ClientId) -> Result<Invalidations, BackendError> {
        self.dialer.check_process()?;
        let (name, queue) = (
            Arc::<str>::from(client_channel(client)),
            InvalidationQueue::default(),
        );
        let listener = Listener::Client(queue.clone(), self.dialer.config.layout.clone());
        self.add(&name, listener.clone(), None)?;
        let (registry, own) = (self.registry.clone(), listener);
        Ok(queue.invalidations(move || registry.remove(&name, &own)))
    }

    /// Ends the task and all wake-ups. Later calls of `watch` fail.
    pub(crate) fn close(&self) {
        let mut task = self.task.lock();
        if let Task::Runs(task) = std::mem::replace(&mut *task, Task::Closed) {
            task.abort();
        }
        let listeners = self.registry.take();
        // Both mutexes are unlocked before the wake-ups end, because a waiter may then call the store, which locks
        // them.
        drop(task);
        drop(listeners);
    }

    /// Adds a listener, and starts the task if it does not run. Both happen under one lock, so that `close` cannot come
    /// in between.
    fn add(
        &self,
        name: &Arc<str>,
        listener: Listener,
        confirmation: Option<oneshot::Sender<()>>,
    ) -> Result<(), BackendError> {
        let mut task = self.task.lock();
        let runs = match &*task {
            Task::None => false,
            Task::Runs(task) => !task.is_finished(),
            Task::Closed => return Err(BackendError::closed()),
        };
        if !runs {
            let running = run(self.dialer.clone(), self.registry.clone(), self.replaced.clone());
            *task = Task::Runs(tokio::spawn(running));
        }
        self.registry.add(name, listener, confirmation);
        Ok(())
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        // A child made by `fork` has neither the task nor the runtime on which to end it.
        if self.dialer.check_process().is_ok() {
            self.close();
        }
    }
}

/// Receives messages for all waiters, and makes waiters poll while their subscription is lost.
async fn run(dialer: Dialer, registry: Arc<Registry>, replaced: watch::Receiver<()>) {
    tokio::join!(
        keep_subscribed(dialer, &registry, replaced),
        poll_while_lost(&registry)
    );
}

/// Makes waiters poll every 100 ms until a lost subscription is restored, because their poll intervals relied on
/// wake-ups.
async fn poll_while_lost(registry: &Registry) {
    loop {
        registry.lost().await;
        while registry.notify_unconfirmed() {
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Subscribes for all waiters. When its connection is lost, or the one for calls is replaced, waits until a claim is
/// watched, and opens another.
async fn keep_subscribed(dialer: Dialer, registry: &Registry, mut replaced: watch::Receiver<()>) {
    let config = &dialer.config;
    loop {
        replaced.mark_unchanged();
        let opened = timeout(config.connect_timeout, subscriber::open(&dialer)).await;
        if let Ok(Ok((subscriber, events))) = opened {
            tokio::select! {
                () = notify_waiters(events, registry) => {}
                _ = apply_changes(subscriber.clone(), registry, config.command_timeout) => {}
                () = ping_until_dead(subscriber, registry, config.command_timeout) => {}
                _ = replaced.changed() => {}
            }
            tracing::debug!("the subscription to Redis was lost: the client subscribes again");
        }
        dialer.slots_may_have_moved();
        registry.reset();
        sleep(RETRY_PAUSE).await;
        while registry.is_empty() {
            registry.changed().await;
        }
    }
}

/// Wakes waiters for each message, until the connection ends, or the server ends a subscription because the channel's
/// slot has moved to another node.
async fn notify_waiters(mut events: BoxStream<'static, Event>, registry: &Registry) {
    while let Some(event) = events.next().await {
        match event {
            Event::Message { channel, message } => registry.notify(&channel, &message),
            Event::Unsubscribed(channel) if registry.is_subscribed(&channel) => return,
            Event::Unsubscribed(_) => {}
        }
    }
}

/// Subscribes and unsubscribes as waiters come and go. Returns when such a command fails or is not confirmed in time.
async fn apply_changes(mut subscriber: Subscriber, registry: &Registry, limit: Duration) -> Option<()> {
    loop {
        let (wanted, unwanted) = registry.take_changes();
        if wanted.is_empty() && unwanted.is_empty() {
            tokio::select! {
                () = registry.changed() => {}
                () = registry.retry_refused() => {}
            }
        }
        for names in wanted.chunks(MAX_CHANNELS) {
            subscribe(&mut subscriber, registry, names, limit).await?;
        }
        for names in unwanted.chunks(MAX_CHANNELS) {
            timeout(limit, subscriber.unsubscribe(names)).await.ok()??;
            registry.unsubscribed(names);
        }
    }
}

/// Subscribes to channels. If the server refuses one of several, subscribes to each alone: the others do not depend on it.
/// Returns `None` if the connection has failed.
async fn subscribe(
    subscriber: &mut Subscriber,
    registry: &Registry,
    names: &[Arc<str>],
    limit: Duration,
) -> Option<()> {
    match timeout(limit, subscriber.subscribe(names)).await.ok()? {
        Ok(()) => registry.confirm(names),
        Err(NotSubscribed::Lost) => return None,
        Err(NotSubscribed::Refused) if names.len() > 1 => {
            for name in names.chunks(1) {
                Box::pin(subscribe(subscriber, registry, name, limit)).await?;
            }
        }
        Err(NotSubscribed::Refused) => registry.refuse(names),
    }
    Some(())
}

/// Pings the connection while there are channels. Returns when a ping fails or is not answered in time.
async fn ping_until_dead(mut subscriber: Subscriber, registry: &Registry, limit: Duration) {
    loop {
        sleep(PING_INTERVAL).await;
        if !registry.is_empty() && !matches!(timeout(limit, subscriber.ping()).await, Ok(Some(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use tenure_backend::{ClaimId, ClaimRef, ClientId, Fault};
    use tenure_endpoint::StoreUrl;

    /// A caller may call `watch` just after another has closed the store.
    #[tokio::test]
    async fn watching_a_closed_store_fails_and_starts_no_task() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let url = format!("redis://{}", server.local_addr().expect("it has an address"));
        let subscriptions = Subscriptions::new(dialer(&url), watch::Sender::new(()).subscribe());
        subscriptions.close();
        let refusal = subscriptions
            .watch(&claim())
            .await
            .map(drop)
            .expect_err("it is closed");
        assert_eq!(refusal.fault(), Fault::Closed);
        assert!(matches!(*subscriptions.task.lock(), Task::Closed));
        assert!(subscriptions.registry.is_empty());
    }

    #[tokio::test]
    async fn watching_after_a_fork_is_refused() {
        let mut child = dialer("redis://127.0.0.1:1");
        child.process = std::process::id() + 1;
        let subscriptions = Subscriptions::new(child, watch::Sender::new(()).subscribe());
        let refusal = subscriptions
            .watch(&claim())
            .await
            .map(drop)
            .expect_err("it is a child");
        assert!(refusal.to_string().contains("after a fork"), "{refusal}");
        assert!(matches!(*subscriptions.task.lock(), Task::None));
    }

    fn dialer(url: &str) -> Dialer {
        let url = StoreUrl::parse(url).expect("a URL");
        Dialer::new(Config::from_url(&url).expect("it makes sense")).expect("no TLS")
    }

    fn claim() -> Claim {
        let key = LockKey::new("k").expect("a key");
        let id = ClaimId::new(ClientId::from_random([0; 16]), 0);
        Claim::of(ClaimRef { key, id }, Duration::from_secs(30))
    }
}
