//! Watches: changes of keys, reported over one stream.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tenure_backend::{BackendError, Fault};
use tokio::sync::mpsc;

use super::members::Members;
use super::messages::*;
use super::stream::Bidirectional;
use crate::error::{ended, of_watch};

/// The greatest number of updates that wait for their reader.
const UPDATES: usize = 64;

/// What a watch reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// The watch was created. Without a start revision it reports all changes after the revision of this header.
    Created(ResponseHeader),
    /// Keys have changed. The header's revision may be later than that of the events.
    Events(ResponseHeader, Vec<Event>),
    /// The start revision is no longer stored, and the watch has ended. The earliest revision that is still stored.
    Compacted(i64),
}

/// A watch. Dropping it ends the watch.
pub struct Watch {
    id: i64,
    updates: mpsc::Receiver<Result<Update, BackendError>>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Watch {
    /// Waits for the next update. The first one is [`Update::Created`].
    ///
    /// # Cancel safety
    /// Dropping the future loses no update.
    ///
    /// # Errors
    /// An error ends the watch: `Unavailable` if the stream has ended, or if more than 64 updates waited for this reader:
    /// read the keys, and watch them again. `Denied` if the user may not read the keys.
    pub async fn next(&mut self) -> Result<Update, BackendError> {
        self.updates.recv().await.unwrap_or_else(|| Err(ended()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Fails if the stream has ended.
        let _ = self.orders.send(Order::Cancel(self.id));
    }
}

/// The watches of a client. A task serves them; it ends with the stream or the client.
pub struct Watches {
    members: Arc<Members>,
    last_id: AtomicI64,
    /// Orders for the task. Each watch sends two at most.
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
}

enum Order {
    Create(WatchCreateRequest, mpsc::Sender<Result<Update, BackendError>>),
    Cancel(i64),
}

impl Watches {
    pub(super) fn new(members: Arc<Members>) -> Self {
        Watches {
            members,
            last_id: AtomicI64::new(0),
            orders: Mutex::new(None),
        }
    }

    /// Watches keys. `request.watch_id` is ignored.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn watch(&self, mut request: WatchCreateRequest) -> Watch {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        request.watch_id = id;
        let (sender, updates) = mpsc::channel(UPDATES);
        let mut orders = self.orders.lock();
        let running = orders.take().filter(|orders| !orders.is_closed());
        let running = running.unwrap_or_else(|| self.start());
        // Fails if the stream ends at this moment. The watch then ends, too.
        let _ = running.send(Order::Create(request, sender));
        let watch = Watch {
            id,
            updates,
            orders: running.clone(),
        };
        *orders = Some(running);
        watch
    }

    pub(super) fn close(&self) {
        self.orders.lock().take();
    }

    fn start(&self) -> mpsc::UnboundedSender<Order> {
        let (sender, orders) = mpsc::unbounded_channel();
        tokio::spawn(serve(self.members.clone(), orders));
        sender
    }
}

/// A watch that has not ended.
struct Open {
    request: WatchCreateRequest,
    updates: mpsc::Sender<Result<Update, BackendError>>,
}

/// Serves watches over one stream, until the stream ends, or the client and all watches are gone.
async fn serve(members: Arc<Members>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut open = HashMap::new();
    let Err(error) = run(&members, &mut orders, &mut open).await else {
        return;
    };
    // The next watch starts another task.
    orders.close();
    while let Ok(order) = orders.try_recv() {
        if let Order::Create(request, updates) = order {
            open.insert(request.watch_id, Open { request, updates });
        }
    }
    for watch in open.values() {
        // Fails if the reader is slow: it finds the end of the channel then.
        let _ = watch.updates.try_send(Err(error.clone()));
    }
}

async fn run(
    members: &Members,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    open: &mut HashMap<i64, Open>,
) -> Result<(), BackendError> {
    let member = members.current().await?;
    let mut stream =
        Bidirectional::<WatchRequest, WatchResponse>::open(member, "/etcdserverpb.Watch/Watch").await;
    // Watches that the member has not confirmed. It answers in the order of the requests; a refusal may lack the ID.
    let mut unconfirmed = VecDeque::new();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                None => return Ok(()),
                Some(Order::Create(request, updates)) => {
                    unconfirmed.push_back(request.watch_id);
                    stream.send(WatchOrder::Create(request.clone()).into())?;
                    open.insert(request.watch_id, Open { request, updates });
                }
                Some(Order::Cancel(watch_id)) if open.remove(&watch_id).is_some() => {
                    stream.send(WatchOrder::Cancel(WatchCancelRequest { watch_id }).into())?;
                }
                Some(Order::Cancel(_)) => {}
            },
            message = stream.next() => {
                let message = message?;
                let id = match message.created {
                    true => unconfirmed.pop_front().unwrap_or(message.watch_id),
                    false => message.watch_id,
                };
                let header = message.header.unwrap_or_default();
                if let Some(watch) = open.get(&id) {
                    let update = if message.compact_revision > 0 {
                        Ok(Update::Compacted(message.compact_revision))
                    } else if message.canceled {
                        Err(refusal(members, &watch.request, &message.cancel_reason).await?)
                    } else if message.created {
                        Ok(Update::Created(header))
                    } else {
                        Ok(Update::Events(header, message.events))
                    };
                    let is_read = watch.updates.try_send(update).is_ok();
                    if message.canceled || !is_read {
                        open.remove(&id);
                    }
                    if !message.canceled && !is_read {
                        stream.send(WatchOrder::Cancel(WatchCancelRequest { watch_id: id }).into())?;
                    }
                }
            }
        }
    }
}

/// Returns the error of a watch that etcd refuses or has ended. Fails if the login of the whole stream is outdated. Some
/// versions answer as if the user lacked a permission then, so the client reads the keys, which logs in again if need be.
async fn refusal(
    members: &Members,
    request: &WatchCreateRequest,
    reason: &str,
) -> Result<BackendError, BackendError> {
    let refused = of_watch(reason);
    let read = RangeRequest {
        range_end: request.range_end.clone(),
        limit: 1,
        keys_only: true,
        ..RangeRequest::key(request.key.clone())
    };
    let may_read = refused.fault() == Fault::Denied
        && members
            .call::<_, RangeResponse>("/etcdserverpb.KV/Range", read)
            .await
            .is_ok();
    if may_read { Err(ended()) } else { Ok(refused) }
}
