//! Wake-ups: one connection that is subscribed to the channels of all claims that are watched here.
//! A message is a hint. That none was missed is never promised, so after each new subscription everybody is woken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use smallvec::SmallVec;
use tenure_backend::{BackendError, Claim, Fairness, LockKey, WakeSignal, Wakes};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::dial::Dialer;
use crate::error::{NoConnection, deaf};
use crate::names::{Owner, channel, channel_of};

/// For how long a subscription that broke is left alone before the next try.
const PAUSE: Duration = Duration::from_millis(200);

/// How often the waiters of a lost subscription poll.
const POLL: Duration = Duration::from_millis(100);

/// How often a subscription is asked whether it still works: behind a dead one every wait lasts until its poll.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How many channels one command names.
const CHUNK: usize = 500;

/// Everybody of this client who waits to be woken.
pub(crate) struct Ear {
    dialer: Dialer,
    book: Arc<Book>,
    task: Mutex<Task>,
    /// Tells when the connection for calls was replaced: the server's name may lead elsewhere by then.
    moved: watch::Receiver<()>,
}

/// The task that hears for all.
enum Task {
    /// Nobody has watched anything yet.
    None,
    Runs(JoinHandle<()>),
    /// None is ever begun again.
    Closed,
}

#[derive(Default)]
struct Book {
    pages: Mutex<Pages>,
    /// How many channels there are: nearly every release finds none.
    count: AtomicUsize,
    changed: Notify,
    /// Notified when a subscription was lost, or could not be restored.
    lost: Notify,
}

#[derive(Default)]
struct Pages {
    channels: HashMap<Arc<str>, Channel>,
    /// Channels at which somebody came first or left last: what is wanted there may differ from what the server knows.
    changed: Vec<Arc<str>>,
}

#[derive(Default)]
struct Channel {
    signals: SmallVec<[WakeSignal; 1]>,
    /// Whether the server has confirmed it.
    subscribed: bool,
    /// Who wants to know when it does. They are told that it will not by being dropped.
    arming: SmallVec<[oneshot::Sender<()>; 1]>,
}

impl Ear {
    pub(crate) fn new(dialer: Dialer, moved: watch::Receiver<()>) -> Self {
        Ear {
            dialer,
            book: Arc::default(),
            task: Mutex::new(Task::None),
            moved,
        }
    }

    /// Whether the server counts this client among the lock's listeners, as far as we know.
    pub(crate) fn listens(&self, key: &LockKey) -> bool {
        if self.book.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let pages = self.book.pages.lock();
        pages
            .channels
            .get(&*channel(key))
            .is_some_and(|channel| channel.subscribed)
    }

    /// Wake-ups for a claim: armed, for the server has confirmed it.
    pub(crate) async fn watch(&self, claim: &Claim) -> Result<Wakes, BackendError> {
        self.dialer.check_process()?;
        let name: Arc<str> = match claim.fairness {
            Fairness::Unfair => channel(&claim.at.key),
            Fairness::Fifo => channel_of(&claim.at.key, &Owner::of(claim.at.id)),
        }
        .into();
        let (tell, told) = oneshot::channel();
        let wakes = self.listen(name, tell)?;
        match timeout(self.dialer.config.command_timeout, told).await {
            Ok(Ok(())) => Ok(wakes),
            _ => Err(deaf()),
        }
    }

    /// Ends every wake-up, for good.
    pub(crate) fn close(&self) {
        let mut task = self.task.lock();
        if let Task::Runs(task) = std::mem::replace(&mut *task, Task::Closed) {
            task.abort();
        }
        let pages = std::mem::take(&mut *self.book.pages.lock());
        self.book.count.store(0, Ordering::Relaxed);
        // Whoever hears of it may call us again.
        drop(task);
        drop(pages);
    }

    /// Enters a claim in the book, and sees to it that the task runs that hears for all: in one step, so that `close` comes
    /// before both or after both.
    fn listen(&self, name: Arc<str>, tell: oneshot::Sender<()>) -> Result<Wakes, BackendError> {
        let mut task = self.task.lock();
        let runs = match &*task {
            Task::None => false,
            Task::Runs(task) => !task.is_finished(),
            Task::Closed => return Err(BackendError::closed()),
        };
        if !runs {
            let hearing = hear(self.dialer.clone(), self.book.clone(), self.moved.clone());
            *task = Task::Runs(tokio::spawn(hearing));
        }
        Ok(self.book.enter(name, tell))
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // A child made by `fork` has neither the task nor the runtime to end it on.
        if self.dialer.check_process().is_ok() {
            self.close();
        }
    }
}

impl Book {
    /// Enters a listener, which leaves when its wake-ups are dropped: the last one to leave ends the subscription.
    fn enter(self: &Arc<Self>, name: Arc<str>, arming: oneshot::Sender<()>) -> Wakes {
        let signal = WakeSignal::default();
        let mut pages = self.pages.lock();
        let channel = pages.channels.entry(name.clone()).or_default();
        channel.signals.push(signal.clone());
        if channel.subscribed {
            // Whoever asked may have gone.
            let _ = arming.send(());
        } else {
            channel.arming.push(arming);
            pages.changed.push(name.clone());
            self.changed.notify_one();
        }
        self.count.store(pages.channels.len(), Ordering::Relaxed);
        let (book, theirs) = (self.clone(), signal.clone());
        signal.wakes(move || book.leave(&name, &theirs))
    }

    fn leave(&self, name: &Arc<str>, signal: &WakeSignal) {
        let mut pages = self.pages.lock();
        let Some(channel) = pages.channels.get_mut(name) else {
            return;
        };
        channel.signals.retain(|other| !other.is(signal));
        if channel.signals.is_empty() {
            pages.changed.push(name.clone());
            self.changed.notify_one();
        }
    }

    /// What the server must be told: which channels we want, and which no more. It counts as not subscribed at once.
    fn differences(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut pages = self.pages.lock();
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for name in std::mem::take(&mut pages.changed) {
            let Some(channel) = pages.channels.get_mut(&name) else {
                continue;
            };
            match (channel.signals.is_empty(), channel.subscribed) {
                (false, false) => wanted.push(name),
                (true, true) => {
                    channel.subscribed = false;
                    unwanted.push(name);
                }
                (true, false) => drop(pages.channels.remove(&name)),
                (false, true) => {}
            }
        }
        self.count.store(pages.channels.len(), Ordering::Relaxed);
        (wanted, unwanted)
    }

    /// The server has confirmed these. Whoever listens is woken: something may have been missed.
    fn confirm(&self, names: &[Arc<str>]) {
        let mut signals: Vec<WakeSignal> = Vec::new();
        let mut pages = self.pages.lock();
        for name in names {
            let Some(channel) = pages.channels.get_mut(name) else {
                continue;
            };
            channel.subscribed = true;
            for arming in channel.arming.drain(..) {
                // Whoever asked may have gone.
                let _ = arming.send(());
            }
            signals.extend(channel.signals.iter().cloned());
            if channel.signals.is_empty() {
                pages.changed.push(name.clone());
                self.changed.notify_one();
            }
        }
        drop(pages);
        signals.iter().for_each(WakeSignal::notify);
    }

    /// The connection is gone: nothing is subscribed, and everything that is wanted must be again.
    fn forget(&self) {
        let mut pages = self.pages.lock();
        let Pages { channels, changed } = &mut *pages;
        changed.clear();
        channels.retain(|name, channel| {
            channel.subscribed = false;
            channel.arming.clear();
            if !channel.signals.is_empty() {
                changed.push(name.clone());
            }
            !channel.signals.is_empty()
        });
        self.count.store(channels.len(), Ordering::Relaxed);
        self.lost.notify_one();
    }

    /// Wakes the listeners of every channel that the server has not confirmed. Returns whether there are any.
    fn ring_unconfirmed(&self) -> bool {
        let pages = self.pages.lock();
        let unconfirmed = pages.channels.values().filter(|channel| !channel.subscribed);
        let signals: Vec<WakeSignal> = unconfirmed
            .flat_map(|channel| channel.signals.iter().cloned())
            .collect();
        drop(pages);
        signals.iter().for_each(WakeSignal::notify);
        !signals.is_empty()
    }

    fn notify(&self, name: &str) {
        let pages = self.pages.lock();
        let signals = pages.channels.get(name).map(|channel| channel.signals.clone());
        drop(pages);
        signals.iter().flatten().for_each(WakeSignal::notify);
    }
}

/// Hears for all. While nothing is heard, the waiters poll.
async fn hear(dialer: Dialer, book: Arc<Book>, moved: watch::Receiver<()>) {
    tokio::join!(hear_in_turn(dialer, &book, moved), poll_while_lost(&book));
}

/// Makes the waiters of a lost subscription poll until it is restored: the advice of their last poll relied on wake-ups.
async fn poll_while_lost(book: &Book) {
    loop {
        book.lost.notified().await;
        while book.ring_unconfirmed() {
            sleep(POLL).await;
        }
    }
}

/// Hears on one connection after the other.
async fn hear_in_turn(dialer: Dialer, book: &Book, mut moved: watch::Receiver<()>) {
    let config = &dialer.config;
    loop {
        moved.mark_unchanged();
        let opened = timeout(config.connect_timeout, subscribe(&dialer)).await;
        if let Ok(Ok(connection)) = opened {
            let (sink, stream) = connection.split();
            tokio::select! {
                () = pass_on(stream, book) => {}
                _ = obey(sink.clone(), book, config.command_timeout) => {}
                () = stay_alive(sink, book, config.command_timeout) => {}
                _ = moved.changed() => {}
            }
            tracing::debug!("the subscription to Redis was lost: another is made");
        }
        book.forget();
        sleep(PAUSE).await;
        while book.count.load(Ordering::Relaxed) == 0 {
            book.changed.notified().await;
        }
    }
}

async fn subscribe(dialer: &Dialer) -> Result<PubSub, NoConnection> {
    Ok(PubSub::new(&dialer.greeting()?, dialer.dial().await?).await?)
}

/// Rings for what is heard, until the connection ends.
async fn pass_on(mut stream: PubSubStream, book: &Book) {
    while let Some(message) = stream.next().await {
        book.notify(message.get_channel_name());
    }
}

/// Subscribes to what is wanted and takes back what is not, until the connection ends.
async fn obey(mut sink: PubSubSink, book: &Book, limit: Duration) -> Option<()> {
    loop {
        let (wanted, unwanted) = book.differences();
        if wanted.is_empty() && unwanted.is_empty() {
            book.changed.notified().await;
        }
        for names in wanted.chunks(CHUNK) {
            let texts: Vec<&str> = names.iter().map(|name| &**name).collect();
            timeout(limit, sink.subscribe(&texts)).await.ok()?.ok()?;
            book.confirm(names);
        }
        for names in unwanted.chunks(CHUNK) {
            let texts: Vec<&str> = names.iter().map(|name| &**name).collect();
            timeout(limit, sink.unsubscribe(&texts)).await.ok()?.ok()?;
            book.pages.lock().changed.extend_from_slice(names);
        }
    }
}

/// Asks from time to time whether the connection works, until it does not.
async fn stay_alive(mut sink: PubSubSink, book: &Book, limit: Duration) {
    loop {
        sleep(HEARTBEAT).await;
        if book.count.load(Ordering::Relaxed) > 0
            && !matches!(timeout(limit, sink.ping::<redis::Value>()).await, Ok(Ok(_)))
        {
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

    /// `watch` may have looked before `close` came, and go on after it.
    #[tokio::test]
    async fn who_watches_once_all_is_closed_is_told_and_no_task_is_left() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let url = format!("redis://{}", server.local_addr().expect("it has an address"));
        let ear = Ear::new(dialer(&url), watch::Sender::new(()).subscribe());
        ear.close();
        let refusal = ear.watch(&claim()).await.map(drop).expect_err("it is closed");
        assert_eq!(refusal.fault(), Fault::Closed);
        assert!(matches!(*ear.task.lock(), Task::Closed));
        assert!(ear.book.pages.lock().channels.is_empty());
    }

    #[tokio::test]
    async fn a_forked_child_may_not_watch() {
        let mut child = dialer("redis://127.0.0.1:1");
        child.process = std::process::id() + 1;
        let ear = Ear::new(child, watch::Sender::new(()).subscribe());
        let refusal = ear.watch(&claim()).await.map(drop).expect_err("it is a child");
        assert!(refusal.to_string().contains("after a fork"), "{refusal}");
        assert!(matches!(*ear.task.lock(), Task::None));
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
