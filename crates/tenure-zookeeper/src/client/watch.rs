//! Watches: a reading request leaves one, and it fires once.

use std::collections::HashMap;

use tokio::sync::oneshot;

/// The number of waiters below which the registry keeps those of dropped watches.
const FEW: usize = 64;

/// Why a watch has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// The data of the node were replaced.
    DataChanged,
    /// A child of the node was created or deleted.
    ChildrenChanged,
    /// The client has another connection, whose server does not know of the watch.
    Reconnected,
    /// The session has ended.
    SessionEnded,
}

/// A watch on a node. Dropping it stops the wait; ZooKeeper keeps the watch until it fires or the connection ends.
#[derive(Debug)]
pub struct Watch(oneshot::Receiver<Event>);

impl Watch {
    /// Waits until the watch fires. Read the node again afterwards, with another watch: changes in between are not
    /// reported.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call returns the event.
    ///
    /// # Panics
    /// If it is called again after it has returned an event.
    pub async fn fired(&mut self) -> Event {
        (&mut self.0).await.unwrap_or(Event::SessionEnded)
    }
}

/// What a watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The existence and the data of a node.
    Node,
    /// The children of a node, and its deletion.
    Children,
}

/// A watch that its server has, or will have once it has answered a request.
pub(super) struct Registration {
    pub(super) on: (Subject, String),
    waiter: oneshot::Sender<Event>,
}

impl Registration {
    pub(super) fn new(subject: Subject, path: &str) -> (Self, Watch) {
        let (waiter, watch) = oneshot::channel();
        let on = (subject, path.to_owned());
        (Registration { on, waiter }, Watch(watch))
    }
}

/// The waiters of the watches that the current server has.
#[derive(Default)]
pub(super) struct Registry {
    waiters: HashMap<(Subject, String), Vec<oneshot::Sender<Event>>>,
    count: usize,
    /// The number of waiters at which those of dropped watches are removed.
    prune_at: usize,
}

impl Registry {
    pub(super) fn insert(&mut self, registration: Registration) {
        let Registration { on, waiter } = registration;
        if self.count >= self.prune_at.max(FEW) {
            self.prune();
        }
        self.waiters.entry(on).or_default().push(waiter);
        self.count += 1;
    }

    /// Removes the waiters of dropped watches, which may never fire.
    fn prune(&mut self) {
        self.waiters.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
        self.count = self.waiters.values().map(Vec::len).sum();
        self.prune_at = 2 * self.count;
    }

    /// Fires the watches of an event that the server reports. Events of other kinds are ignored.
    pub(super) fn fire(&mut self, kind: i32, path: String) {
        let (event, subjects): (_, &[_]) = match kind {
            1 => (Event::Created, &[Subject::Node]),
            2 => (Event::Deleted, &[Subject::Node, Subject::Children]),
            3 => (Event::DataChanged, &[Subject::Node]),
            4 => (Event::ChildrenChanged, &[Subject::Children]),
            _ => return,
        };
        for subject in subjects {
            let waiters = self.waiters.remove(&(*subject, path.clone()));
            let waiters = waiters.unwrap_or_default();
            self.count -= waiters.len();
            for waiter in waiters {
                // Fails if the watch was dropped.
                let _ = waiter.send(event);
            }
        }
    }

    /// Fires all watches.
    pub(super) fn fire_all(&mut self, event: Event) {
        self.count = 0;
        for waiter in self.waiters.drain().flat_map(|(_, waiters)| waiters) {
            // Fails if the watch was dropped.
            let _ = waiter.send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(registry: &mut Registry, subject: Subject, path: &str) -> Watch {
        let (registration, watch) = Registration::new(subject, path);
        registry.insert(registration);
        watch
    }

    #[test]
    fn an_event_fires_the_watches_that_it_concerns() {
        use Subject::{Children, Node};
        for (kind, expected) in [
            (1, [Some(Event::Created), None]),
            (2, [Some(Event::Deleted); 2]),
            (3, [Some(Event::DataChanged), None]),
            (4, [None, Some(Event::ChildrenChanged)]),
            (0, [None, None]),
        ] {
            let mut registry = Registry::default();
            let mut watches = [Node, Children].map(|subject| register(&mut registry, subject, "/a"));
            let mut other = register(&mut registry, Node, "/b");
            registry.fire(kind, "/a".to_owned());
            let fired = watches.each_mut().map(|watch| watch.0.try_recv().ok());
            assert_eq!(fired, expected, "{kind}");
            assert!(other.0.try_recv().is_err());
            let left = expected.iter().filter(|event| event.is_none()).count();
            assert_eq!(registry.count, 1 + left);
        }
    }

    #[test]
    fn dropped_watches_are_forgotten() {
        let mut registry = Registry::default();
        let mut kept = register(&mut registry, Subject::Node, "/kept");
        for number in 0..10 * FEW {
            drop(register(&mut registry, Subject::Node, &number.to_string()));
        }
        assert!(registry.count <= FEW + 1, "{}", registry.count);
        registry.fire_all(Event::Reconnected);
        assert_eq!((registry.count, kept.0.try_recv()), (0, Ok(Event::Reconnected)));
    }
}
