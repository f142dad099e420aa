//! Watches: changes of keys, reported over one stream.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tenure_backend::{BackendError, Fault};
use tokio::sync::mpsc;

use super::calls::{Client, Order, Updates};
use super::messages::*;
use super::methods::{RANGE, WATCH};
use super::stream::Replies;
use crate::error::{ended, of_watch};

/// The greatest number of updates that wait for their reader.
const UPDATES: usize = 64;

/// A watch. Dropping it ends the watch.
pub struct Watch {
    id: i64,
    updates: mpsc::Receiver<Result<WatchResponse, BackendError>>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Watch {
    /// Waits for the next update. The first one says that the watch was created.
    ///
    /// # Cancel safety
    /// Dropping the future loses no update.
    ///
    /// # Errors
    /// An error ends the watch: `Unavailable` if the stream has ended, or if more than 64 updates waited for this reader:
    /// read the keys, and watch them again. `Denied` if the user may not read the keys.
    pub async fn next(&mut self) -> Result<WatchResponse, BackendError> {
        self.updates.recv().await.unwrap_or_else(|| Err(ended()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Fails if the stream has ended.
        let _ = self.orders.send(Order::Cancel(self.id));
    }
}

impl Client {
    /// Watches keys. `request.watch_id` is ignored.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn watch(self: &Arc<Self>, mut request: WatchCreateRequest) -> Watch {
        let id = self.last_watch.fetch_add(1, Ordering::Relaxed) + 1;
        request.watch_id = id;
        let (sender, updates) = mpsc::channel(UPDATES);
        let mut orders = self.orders.lock();
        let running = orders.take().filter(|orders| !orders.is_closed());
        let running = running.unwrap_or_else(|| {
            let (sender, orders) = mpsc::unbounded_channel();
            tokio::spawn(serve(self.clone(), orders));
            sender
        });
        // Fails if the stream ends at this moment. The watch then ends, too.
        let _ = running.send(Order::Create(request, sender));
        *orders = Some(running.clone());
        let orders = running;
        Watch { id, updates, orders }
    }
}

/// Watches that have not ended, by their IDs.
type Open = HashMap<i64, (WatchCreateRequest, Updates)>;

/// Serves watches over one stream, until the stream ends, or the client and all watches are gone.
async fn serve(client: Arc<Client>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut open = Open::new();
    let Err(error) = run(client, &mut orders, &mut open).await else {
        return;
    };
    // The next watch starts another task.
    orders.close();
    while let Ok(order) = orders.try_recv() {
        if let Order::Create(request, updates) = order {
            open.insert(request.watch_id, (request, updates));
        }
    }
    for (_, updates) in open.values() {
        // Fails if the reader is slow: it finds the end of the channel then.
        let _ = updates.try_send(Err(error.clone()));
    }
}

async fn run(
    client: Arc<Client>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    open: &mut Open,
) -> Result<(), BackendError> {
    // Not bounded: a slow member would end the stream, and with it every watch.
    let (requests, waiting) = mpsc::unbounded_channel();
    let mut replies = Replies::of(&WATCH, client.current().await?, waiting).await;
    // The stream ends when client and watches are gone.
    let known = Arc::downgrade(&client);
    drop(client);
    // Fails if the stream has ended, which its replies say.
    let send = |create, cancel| _ = requests.send(WatchRequest { create, cancel });
    let end = |open: &mut Open, watch_id| {
        if open.remove(&watch_id).is_some() {
            send(None, Some(WatchCancelRequest { watch_id }));
        }
    };
    // Watches that the member has not confirmed. It answers in the order of the requests; a refusal may lack the ID.
    let mut unconfirmed = VecDeque::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return Ok(()),
                Some(Order::Create(request, updates)) => {
                    unconfirmed.push_back(request.watch_id);
                    send(Some(request.clone()), None);
                    open.insert(request.watch_id, (request, updates));
                }
                Some(Order::Cancel(id)) => end(open, id),
            },
            message = replies.next() => {
                let message = message?;
                let id = match message.created {
                    true => unconfirmed.pop_front().unwrap_or(message.watch_id),
                    false => message.watch_id,
                };
                if message.canceled {
                    if let Some((request, updates)) = open.remove(&id) {
                        let refused = refusal(&known, request, &message.cancel_reason).await?;
                        // Fails if the reader is slow: it finds the end of the channel then.
                        let _ = updates.try_send(Err(refused));
                    }
                } else if let Some((_, updates)) = open.get(&id)
                    && updates.try_send(Ok(message)).is_err()
                {
                    end(open, id);
                }
            }
        }
    }
}

/// Returns the error of a watch that etcd refuses or has ended. Fails if the login of the whole stream is outdated. Some
/// versions answer as if the user lacked a permission then, so the client reads the keys, which logs in again if need be.
async fn refusal(
    client: &Weak<Client>,
    request: WatchCreateRequest,
    reason: &str,
) -> Result<BackendError, BackendError> {
    let refused = of_watch(reason);
    let read = RangeRequest {
        range_end: request.range_end,
        limit: 1,
        keys_only: true,
        ..RangeRequest::key(request.key)
    };
    match client.upgrade() {
        Some(client) if refused.fault() == Fault::Denied && client.call(RANGE, read).await.is_ok() => {
            Err(ended())
        }
        _ => Ok(refused),
    }
}
