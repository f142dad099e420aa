//! A signal for one listener: what most wake-ups are made of.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::Wakes;

/// A signal that remembers that it was rung until somebody hears it. Ringing twice is ringing once.
///
/// Clones are the same signal: a store keeps one to [ring](WakeSignal::ring), and gives [wake-ups](WakeSignal::wakes) out, which never
/// end. Only who polled last is woken.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::future::poll_fn;
/// use std::pin::Pin;
/// use futures_core::Stream;
/// use tenure_backend::WakeSignal;
///
/// let signal = WakeSignal::default();
/// let mut wakes = signal.wakes(|| println!("the listener was dropped"));
/// signal.notify();
/// signal.notify();
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, Some(()));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WakeSignal(Arc<Mutex<Pull>>);

#[derive(Debug, Default)]
struct Pull {
    is_notified: bool,
    listener: Option<Waker>,
}

impl WakeSignal {
    /// Wakes the listener, or whoever listens next. Not to be called under a lock of yours: a waker runs code of others.
    pub fn notify(&self) {
        let listener = {
            let mut pull = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            pull.is_notified = true;
            pull.listener.take()
        };
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Wake-ups by this signal. Calls `dropped` when they are dropped.
    pub fn wakes(&self, dropped: impl FnMut() + Send + 'static) -> Wakes {
        let signal = self.clone();
        Wakes::new(Listener { signal, dropped })
    }

    /// Whether that is this signal, and not another.
    pub fn is(&self, other: &WakeSignal) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ready once for all that was rung since it was last heard.
    pub fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pull = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut pull.is_notified) {
            return Poll::Ready(());
        }
        match &mut pull.listener {
            Some(listener) => listener.clone_from(cx.waker()),
            None => pull.listener = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Stream for WakeSignal {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.poll_notified(cx).map(Some)
    }
}

/// Listens to a signal until it is dropped.
struct Listener<F: FnMut()> {
    signal: WakeSignal,
    dropped: F,
}

impl<F: FnMut()> Stream for Listener<F> {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.signal.poll_notified(cx).map(Some)
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

    fn heard(signal: &WakeSignal) -> bool {
        signal
            .poll_notified(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn what_was_rung_before_anybody_listened_is_heard_once() {
        let signal = WakeSignal::default();
        assert!(!heard(&signal));
        signal.notify();
        signal.notify();
        assert!(heard(&signal) && !heard(&signal));
    }

    #[test]
    fn clones_are_one_bell() {
        let (signal, other) = (WakeSignal::default(), WakeSignal::default());
        signal.clone().notify();
        assert!(heard(&signal) && !heard(&other));
        assert!(signal.is(&signal.clone()) && !signal.is(&other));
    }
}
