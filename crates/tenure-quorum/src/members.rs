//! The members of a quorum, and the functions that send a request to all of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Batch};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// The stores of a quorum, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) list: Vec<Arc<dyn Backend>>,
    /// The runtime on which requests to members run.
    pub(crate) runtime: Handle,
    /// Longest time for which one round of requests waits for replies.
    pub(crate) time_limit: Duration,
}

impl Members {
    /// The number of members that must agree.
    pub(crate) fn majority(&self) -> usize {
        self.list.len() / 2 + 1
    }

    /// Sends a request to each of `members` (indices of `list`). Each request is a task of its own and runs to its end,
    /// even if the caller no longer waits. `unread` gets each reply that arrives after the [`Replies`] were closed or
    /// dropped.
    pub(crate) fn ask<T, F>(
        &self,
        members: impl IntoIterator<Item = usize>,
        request: impl Fn(Arc<dyn Backend>) -> F,
        unread: impl Fn(Arc<dyn Backend>, T) + Clone + Send + 'static,
    ) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = unbounded_channel();
        for number in members {
            let member = self.list[number].clone();
            let (request, sender, unread) = (request(member.clone()), sender.clone(), unread.clone());
            self.runtime.spawn(async move {
                if let Err(reply) = sender.send((number, request.await)) {
                    unread(member, reply.0.1);
                }
            });
        }
        Replies {
            receiver,
            until: Instant::now() + self.time_limit,
        }
    }

    /// Sends a request to every member. Late replies are dropped.
    pub(crate) fn ask_all<T, F>(&self, request: impl Fn(Arc<dyn Backend>) -> F) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.ask(0..self.list.len(), request, |_, _| {})
    }
}

/// The replies of members, in the order in which they arrive.
pub(crate) struct Replies<T> {
    receiver: UnboundedReceiver<(usize, T)>,
    until: Instant,
}

impl<T> Replies<T> {
    /// Waits for the next reply, and returns it with the member's index. `None` if all requests have ended, or the
    /// time limit has passed.
    pub(crate) async fn next(&mut self) -> Option<(usize, T)> {
        timeout_at(self.until, self.receiver.recv()).await.ok().flatten()
    }

    /// Ends the wait. Returns the replies that have arrived and were not read; later ones go to the `unread` of
    /// [`ask`](Members::ask).
    pub(crate) fn close(mut self) -> Vec<(usize, T)> {
        self.receiver.close();
        std::iter::from_fn(|| self.receiver.try_recv().ok()).collect()
    }
}

impl<R> Replies<Batch<R>> {
    /// Calls `add` with each element of a batch and each member's reply to it, as the replies arrive, until all
    /// elements are decided or no more replies come.
    pub(crate) async fn tally<E>(
        &mut self,
        elements: &mut [E],
        add: impl Fn(&mut E, usize, R),
        is_decided: impl Fn(&E) -> bool,
    ) {
        while !elements.iter().all(&is_decided) {
            let Some((member, replies)) = self.next().await else {
                return;
            };
            for (element, reply) in elements.iter_mut().zip(replies) {
                add(element, member, reply);
            }
        }
    }
}
