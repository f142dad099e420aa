//! A bell for one listener: what most wake-ups are made of.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::Wakes;

/// A bell that remembers that it was rung until somebody hears it. Ringing twice is ringing once.
///
/// Clones are the same bell: a store keeps one to [ring](Bell::ring), and gives [wake-ups](Bell::wakes) out, which never
/// end. Only who polled last is woken.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use futures_core::Stream;
/// use tenure_backend::Bell;
///
/// let bell = Bell::default();
/// let mut wakes = bell.wakes(|| println!("the listener was dropped"));
/// bell.ring();
/// bell.ring();
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, Some(()));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Mutex<Pull>>);

#[derive(Debug, Default)]
struct Pull {
    rung: bool,
    listener: Option<Waker>,
}

impl Bell {
    /// Wakes the listener, or whoever listens next. Not to be called under a lock of yours: a waker runs code of others.
    pub fn ring(&self) {
        let listener = {
            let mut pull = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            pull.rung = true;
            pull.listener.take()
        };
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Wake-ups by this bell. Calls `dropped` when they are dropped.
    pub fn wakes(&self, dropped: impl FnMut() + Send + 'static) -> Wakes {
        let bell = self.clone();
        Wakes::new(Listener { bell, dropped })
    }

    /// Whether that is this bell, and not another.
    pub fn is(&self, other: &Bell) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ready once for all that was rung since it was last heard.
    pub fn poll_heard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pull = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut pull.rung) {
            return Poll::Ready(());
        }
        match &mut pull.listener {
            Some(listener) => listener.clone_from(cx.waker()),
            None => pull.listener = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Stream for Bell {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.poll_heard(cx).map(Some)
    }
}

/// Listens to a bell until it is dropped.
struct Listener<F: FnMut()> {
    bell: Bell,
    dropped: F,
}

impl<F: FnMut()> Stream for Listener<F> {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.bell.poll_heard(cx).map(Some)
    }
}

impl<F: FnMut()> Drop for Listener<F> {
    fn drop(&mut self) {
        (self.dropped)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bell: &Bell) -> bool {
        bell.poll_heard(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn what_was_rung_before_anybody_listened_is_heard_once() {
        let bell = Bell::default();
        assert!(!heard(&bell));
        bell.ring();
        bell.ring();
        assert!(heard(&bell) && !heard(&bell));
    }

    #[test]
    fn clones_are_one_bell() {
        let (bell, other) = (Bell::default(), Bell::default());
        bell.clone().ring();
        assert!(heard(&bell) && !heard(&other));
        assert!(bell.is(&bell.clone()) && !bell.is(&other));
    }
}
