//! The members of a quorum, and the functions that send a request to all of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, Batch};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::leftovers::Leftovers;
use crate::member::{Member, Unanswered};

/// The members of a quorum, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) list: Vec<Arc<Member>>,
    /// The runtime on which requests to members run.
    pub(crate) runtime: Handle,
    /// Longest time for which one round of requests waits for replies.
    pub(crate) time_limit: Duration,
    /// Counts the work that may leave a claim at a member if it is dropped.
    pub(crate) tasks: TaskTracker,
}

impl Members {
    pub(crate) fn new(stores: Vec<Arc<dyn Backend>>, runtime: Handle, time_limit: Duration) -> Self {
        let tasks = TaskTracker::new();
        let member = |(number, store): (usize, Arc<dyn Backend>)| {
            Arc::new(Member {
                number,
                leftovers: Leftovers::new(store.clone(), runtime.clone(), tasks.clone()),
                store,
                time_limit,
                requests: Mutex::new(Unanswered::default()),
            })
        };
        Members {
            list: stores.into_iter().enumerate().map(member).collect(),
            runtime,
            time_limit,
            tasks,
        }
    }

    /// The number of members that must agree.
    pub(crate) fn majority(&self) -> usize {
        self.list.len() / 2 + 1
    }

    /// Sends a request to each of `members` (indices of `list`). Each request is a task of its own and runs to its end,
    /// even if the caller no longer waits. `unread` gets each reply that arrives after the [`Replies`] were closed or
    /// dropped. Closing the quorum waits for the tasks.
    pub(crate) fn ask<T, F>(
        &self,
        members: impl IntoIterator<Item = usize>,
        request: impl Fn(Arc<Member>) -> F,
        unread: impl Fn(Arc<Member>, T) + Clone + Send + 'static,
    ) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.send(members, request, unread, Some(self.tasks.token()))
    }

    /// Sends a request that leaves no claim to every member. Late replies are dropped, and closing the quorum does not
    /// wait for them.
    pub(crate) fn ask_all<T, F>(&self, request: impl Fn(Arc<Member>) -> F) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.send(0..self.list.len(), request, |_, _| {}, None)
    }

    fn send<T, F>(
        &self,
        members: impl IntoIterator<Item = usize>,
        request: impl Fn(Arc<Member>) -> F,
        unread: impl Fn(Arc<Member>, T) + Clone + Send + 'static,
        counted: Option<TaskTrackerToken>,
    ) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = unbounded_channel();
        for number in members {
            let member = self.list[number].clone();
            let (request, sender, unread) = (request(member.clone()), sender.clone(), unread.clone());
            let counted = counted.clone();
            self.runtime.spawn(async move {
                let _counted = counted;
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

    /// Waits for the work that may leave a claim at a member, at most for the time limit of a round: a member may not
    /// have answered a release that a majority has confirmed.
    pub(crate) async fn settle(&self) {
        let (tasks, limit) = (self.tasks.clone(), self.time_limit);
        tasks.close();
        // A task waits, because the caller's runtime may have no timers. It ends at once if its runtime has ended.
        let settled = self
            .runtime
            .spawn(async move { timeout(limit, tasks.wait()).await.is_ok() });
        let _ = settled.await;
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
