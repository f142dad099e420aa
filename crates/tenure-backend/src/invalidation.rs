//! Invalidations: a store's hints that claims of a client may be gone.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::LockKey;

/// A hint that claims which a client holds may be gone from the store.
///
/// The client renews these claims at once, and only the store's answer to a renewal decides whether they are gone. So an
/// invalidation may be false, which costs one renewal, or may be lost: then the client learns of the loss at its next
/// renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Invalidation {
    /// Each claim of the client may be gone: a connection was replaced, a session ended, or hints were lost.
    All,
    /// The client's claim on this key may be gone: it was evicted, or its key was deleted.
    Key(LockKey),
}

/// A stream of [`Invalidation`]s for one client. Dropping the stream ends the subscription. After the stream has ended or
/// panicked, the client learns of a loss only from its renewals.
///
/// # Examples
/// ```
/// # use std::{future::poll_fn, pin::Pin};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use futures_core::Stream;
/// use tenure_backend::{Invalidation, InvalidationQueue, LockKey};
///
/// let queue = InvalidationQueue::default();
/// let mut invalidations = queue.invalidations(|| println!("the client was closed"));
/// queue.push(Invalidation::Key(LockKey::new("k").expect("a key")));
/// let hint = poll_fn(|cx| Pin::new(&mut invalidations).poll_next(cx)).await;
/// assert_eq!(hint, Some(Invalidation::Key(LockKey::new("k").expect("a key"))));
/// # }
/// ```
#[must_use = "the subscription ends when this is dropped"]
pub struct Invalidations(Pin<Box<dyn Stream<Item = Invalidation> + Send>>);

impl Invalidations {
    /// Wraps a stream of a store.
    pub fn new(stream: impl Stream<Item = Invalidation> + Send + 'static) -> Self {
        Invalidations(Box::pin(stream))
    }
}

impl Stream for Invalidations {
    type Item = Invalidation;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Invalidation>> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll_next(cx))).unwrap_or(Poll::Ready(None))
    }
}

impl fmt::Debug for Invalidations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invalidations(..)")
    }
}

/// The invalidations of one client that it has not read yet. Most stores build their [`Invalidations`] from it.
///
/// The queue holds at most [`MAX_KEYS`](Self::MAX_KEYS) keys, each once. With more, it holds [`Invalidation::All`] instead.
/// Clones share one queue.
///
/// # Examples
/// See [`Invalidations`].
#[derive(Clone, Debug, Default)]
pub struct InvalidationQueue(Arc<Mutex<Unread>>);

#[derive(Debug, Default)]
struct Unread {
    all: bool,
    keys: BTreeSet<LockKey>,
    reader: Option<Waker>,
}

impl InvalidationQueue {
    /// The most keys that wait to be read.
    pub const MAX_KEYS: usize = 1_024;

    /// Adds an invalidation, and wakes the reader.
    ///
    /// Release your own locks before the call: a waker may run any code.
    pub fn push(&self, invalidation: Invalidation) {
        let reader = {
            let mut unread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match invalidation {
                Invalidation::Key(key) if !unread.all => _ = unread.keys.insert(key),
                Invalidation::Key(_) => {}
                Invalidation::All => unread.all = true,
            }
            if unread.all || unread.keys.len() > Self::MAX_KEYS {
                unread.all = true;
                unread.keys.clear();
            }
            unread.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Returns this queue as a stream, for one reader. Calls `dropped` when the stream is dropped.
    pub fn invalidations(&self, dropped: impl FnMut() + Send + 'static) -> Invalidations {
        let queue = self.clone();
        Invalidations::new(Reader { queue, dropped })
    }

    /// Takes out the next invalidation, or remembers the reader's waker.
    pub fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Invalidation> {
        let mut unread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut unread.all) {
            return Poll::Ready(Invalidation::All);
        }
        if let Some(key) = unread.keys.pop_first() {
            return Poll::Ready(Invalidation::Key(key));
        }
        match &mut unread.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            None => unread.reader = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns whether `other` is a clone of this queue.
    pub fn is(&self, other: &InvalidationQueue) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

struct Reader<F: FnMut()> {
    queue: InvalidationQueue,
    dropped: F,
}

// Nothing in it is pinned.
impl<F: FnMut()> Unpin for Reader<F> {}

impl<F: FnMut()> Stream for Reader<F> {
    type Item = Invalidation;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Invalidation>> {
        self.queue.poll_pop(cx).map(Some)
    }
}

impl<F: FnMut()> Drop for Reader<F> {
    fn drop(&mut self) {
        (self.dropped)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> LockKey {
        LockKey::new(format!("k{number}")).expect("a key")
    }

    fn unread(queue: &InvalidationQueue) -> Vec<Invalidation> {
        let mut unread = Vec::new();
        while let Poll::Ready(next) = queue.poll_pop(&mut Context::from_waker(Waker::noop())) {
            unread.push(next);
        }
        unread
    }

    #[test]
    fn several_of_one_key_count_as_one() {
        let queue = InvalidationQueue::default();
        for number in [1, 2, 1] {
            queue.push(Invalidation::Key(key(number)));
        }
        assert_eq!(
            unread(&queue),
            [1, 2].map(|number| Invalidation::Key(key(number)))
        );
        queue.push(Invalidation::Key(key(1)));
        assert_eq!(unread(&queue).len(), 1, "one that was read is forgotten");
    }

    #[test]
    fn too_many_keys_become_all() {
        let queue = InvalidationQueue::default();
        for number in 0..InvalidationQueue::MAX_KEYS {
            queue.push(Invalidation::Key(key(number)));
        }
        assert_eq!(unread(&queue).len(), InvalidationQueue::MAX_KEYS);
        for number in 0..=InvalidationQueue::MAX_KEYS + 9 {
            queue.push(Invalidation::Key(key(number)));
        }
        assert_eq!(unread(&queue), [Invalidation::All]);
    }

    #[test]
    fn all_covers_the_keys_before_and_after() {
        let queue = InvalidationQueue::default();
        queue.push(Invalidation::Key(key(1)));
        queue.push(Invalidation::All);
        queue.push(Invalidation::Key(key(2)));
        assert_eq!(unread(&queue), [Invalidation::All]);
    }
}
