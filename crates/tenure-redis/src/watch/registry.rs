//! The channels that this client wants to hear, and who listens to each. The task that owns the connection takes the
//! changes from here, and reports what the server has confirmed, refused or lost.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tenure_backend::{Invalidation, InvalidationQueue, LockKey, WakeSignal};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::layout::Layout;

/// Pause before the client tries a channel again that the server has refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<RegistryState>,
    changed: Notify,
    /// Notified when the connection was lost, or could not be opened: waiters then poll.
    lost: Notify,
}

#[derive(Default)]
struct RegistryState {
    channels: HashMap<Arc<str>, Channel>,
    /// Channels that the task may have to subscribe to, unsubscribe from, or remove from `channels`.
    changed: Vec<Arc<str>>,
    /// Channels to which the user may not subscribe, and the time of the next try: an operator may permit it.
    refused: Vec<Arc<str>>,
    retry_at: Option<Instant>,
}

/// Who listens to a channel.
#[derive(Clone)]
pub(super) enum Listener {
    /// The waiter of a claim, which each message wakes.
    Waiter(WakeSignal),
    /// A client, to which each message names a lock, as this layout keeps it in Redis.
    Client(InvalidationQueue, Layout),
}

#[derive(Default)]
pub(super) struct Channel {
    listeners: SmallVec<[Listener; 1]>,
    /// True if the server has confirmed the subscription, and the task has not begun to unsubscribe.
    subscribed: bool,
    /// Callers of `watch` that wait for the confirmation. Dropping a sender tells the caller that none will come.
    confirmations: SmallVec<[oneshot::Sender<()>; 1]>,
}

impl Registry {
    /// Adds a listener to a channel. The task unsubscribes from a channel without listeners.
    ///
    /// A client whose channel is subscribed already may have missed the messages to earlier listeners, and hears so at once.
    pub(super) fn add(&self, name: &Arc<str>, listener: Listener, confirmation: Option<oneshot::Sender<()>>) {
        let mut state = self.state.lock();
        let channel = state.channels.entry(name.clone()).or_default();
        channel.listeners.push(listener.clone());
        if channel.subscribed {
            drop(state);
            let _ = confirmation.map(|confirmation| confirmation.send(()));
            if matches!(listener, Listener::Client(..)) {
                listener.tell(None);
            }
        } else {
            channel.confirmations.extend(confirmation);
            state.changed.push(name.clone());
            self.changed.notify_one();
        }
    }

    pub(super) fn remove(&self, name: &Arc<str>, listener: &Listener) {
        let mut state = self.state.lock();
        let Some(channel) = state.channels.get_mut(name) else {
            return;
        };
        channel.listeners.retain(|other| !other.is(listener));
        if channel.listeners.is_empty() {
            state.changed.push(name.clone());
            self.changed.notify_one();
        }
    }

    /// Returns the channels to subscribe to, and those to unsubscribe from. Marks the latter as not subscribed, and
    /// removes channels that have neither waiters nor a subscription.
    pub(super) fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut state = self.state.lock();
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut state.changed) {
            let Some(channel) = state.channels.get_mut(&name) else {
                continue;
            };
            match (channel.listeners.is_empty(), channel.subscribed) {
                (false, false) => wanted.push(name),
                (true, true) => {
                    channel.subscribed = false;
                    unwanted.push(name);
                }
                (true, false) => drop(state.channels.remove(&name)),
                (false, true) => {}
            }
        }
        (wanted, unwanted)
    }

    /// Marks channels as confirmed, and tells their listeners that they may have missed a message. A call of `watch` that
    /// returns then has this wake-up, and no second one follows it.
    pub(super) fn confirm(&self, names: &[Arc<str>]) {
        let (mut listeners, mut confirmations) = (Vec::<Listener>::new(), Vec::new());
        let mut state = self.state.lock();
        for name in names {
            let Some(channel) = state.channels.get_mut(name) else {
                continue;
            };
            channel.subscribed = true;
            confirmations.extend(channel.confirmations.drain(..));
            listeners.extend(channel.listeners.iter().cloned());
            if channel.listeners.is_empty() {
                state.changed.push(name.clone());
                self.changed.notify_one();
            }
        }
        drop(state);
        listeners.iter().for_each(|listener| listener.tell(None));
        for confirmation in confirmations {
            let _ = confirmation.send(());
        }
    }

    /// Fails the calls of `watch` that wait for the confirmation of these channels, and makes their waiters poll: the user
    /// may not subscribe to them.
    pub(super) fn refuse(&self, names: &[Arc<str>]) {
        let mut state = self.state.lock();
        for name in names {
            if let Some(channel) = state.channels.get_mut(name) {
                channel.confirmations.clear();
            }
        }
        state.refused.extend_from_slice(names);
        state.retry_at.get_or_insert(Instant::now() + REFUSED_PAUSE);
        drop(state);
        self.lost.notify_one();
    }

    /// Waits until refused channels may be tried again, and queues them for subscription.
    pub(super) async fn retry_refused(&self) {
        let retry_at = self.state.lock().retry_at;
        match retry_at {
            Some(retry_at) => sleep_until(retry_at).await,
            None => pending().await,
        }
        let mut state = self.state.lock();
        let RegistryState { changed, refused, .. } = &mut *state;
        changed.append(refused);
        state.retry_at = None;
    }

    /// Marks all channels as not subscribed, after the connection was lost or could not be opened. Queues those with
    /// waiters for subscription, fails the calls of `watch` that wait for a confirmation, and makes waiters poll.
    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        let RegistryState {
            channels,
            changed,
            refused,
            retry_at,
        } = &mut *state;
        changed.clear();
        refused.clear();
        *retry_at = None;
        channels.retain(|name, channel| {
            channel.subscribed = false;
            channel.confirmations.clear();
            if !channel.listeners.is_empty() {
                changed.push(name.clone());
            }
            !channel.listeners.is_empty()
        });
        self.lost.notify_one();
    }

    /// Wakes the waiters of all channels that the server has not confirmed. Returns whether it woke any.
    pub(super) fn notify_unconfirmed(&self) -> bool {
        let state = self.state.lock();
        let unconfirmed = state.channels.values().filter(|channel| !channel.subscribed);
        // A client without its channel learns of evictions from its renewals.
        let is_waiter = |listener: &&Listener| matches!(listener, Listener::Waiter(_));
        let waiters = unconfirmed.flat_map(|channel| channel.listeners.iter().filter(is_waiter));
        let waiters: Vec<Listener> = waiters.cloned().collect();
        drop(state);
        waiters.iter().for_each(|waiter| waiter.tell(None));
        !waiters.is_empty()
    }

    /// Returns whether no claim is watched, and the subscriptions of earlier ones have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().channels.is_empty()
    }

    /// Returns whether the server has confirmed the subscription to a channel.
    pub(super) fn is_subscribed(&self, name: &str) -> bool {
        let state = self.state.lock();
        state.channels.get(name).is_some_and(|channel| channel.subscribed)
    }

    pub(super) fn notify(&self, name: &str, message: &str) {
        let state = self.state.lock();
        let listeners = state.channels.get(name).map(|channel| channel.listeners.clone());
        drop(state);
        listeners
            .iter()
            .flatten()
            .for_each(|listener| listener.tell(Some(message)));
    }

    /// Queues channels for removal that the server no longer has a subscription for.
    pub(super) fn unsubscribed(&self, names: &[Arc<str>]) {
        self.state.lock().changed.extend_from_slice(names);
    }

    /// Removes all channels, and returns them. Dropping them ends their listeners' wake-ups.
    pub(super) fn take(&self) -> HashMap<Arc<str>, Channel> {
        std::mem::take(&mut *self.state.lock()).channels
    }

    /// Waits until `take_changes` may have something to return.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until the subscription to a channel was lost or refused.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Listener {
    fn is(&self, other: &Listener) -> bool {
        match (self, other) {
            (Listener::Waiter(one), Listener::Waiter(other)) => one.is(other),
            (Listener::Client(one, _), Listener::Client(other, _)) => one.is(other),
            _ => false,
        }
    }

    /// Passes on a message; without one, that messages may have been missed.
    pub(super) fn tell(&self, message: Option<&str>) {
        match self {
            Listener::Waiter(signal) => signal.notify(),
            Listener::Client(queue, layout) => {
                let name = message.and_then(|key| layout.name_of(key));
                queue.push(match name.map(LockKey::new) {
                    Some(Ok(key)) => Invalidation::Key(key),
                    _ => Invalidation::All,
                });
            }
        }
    }
}
