//! A wake-up signal for one listener. Most stores build their wake-ups from it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::Wakes;

/// A signal that remembers one notification until a listener polls it. Two notifications before a poll count as one.
///
/// Clones share one signal. A store keeps a clone to [`notify`](WakeSignal::notify), and returns
/// [`wakes`](WakeSignal::wakes), an endless stream, to the listener. If several tasks poll, only the last one is woken.
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
pub struct WakeSignal(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_notified: bool,
    listener: Option<Waker>,
}

impl WakeSignal {
    /// Wakes the listener, if one waits, and makes the next poll ready.
    ///
    /// Release your own locks before the call: a waker may run any code.
    pub fn notify(&self) {
        let listener = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_notified = true;
            state.listener.take()
        };
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    /// Returns this signal as a stream of wake-ups. Calls `dropped` when the stream is dropped.
    pub fn wakes(&self, dropped: impl FnMut() + Send + 'static) -> Wakes {
        let signal = self.clone();
        Wakes::new(Listener { signal, dropped })
    }

    /// Returns whether `other` is a clone of this signal.
    pub fn is(&self, other: &WakeSignal) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ready if the signal was notified since the last ready poll. Otherwise `notify` will wake the polling task.
    pub fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.is_notified) {
            return Poll::Ready(());
        }
        match &mut state.listener {
            Some(listener) => listener.clone_from(cx.waker()),
            None => state.listener = Some(cx.waker().clone()),
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

    fn was_notified(signal: &WakeSignal) -> bool {
        signal
            .poll_notified(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn notifications_before_the_first_poll_count_as_one() {
        let signal = WakeSignal::default();
        assert!(!was_notified(&signal));
        signal.notify();
        signal.notify();
        assert!(was_notified(&signal) && !was_notified(&signal));
    }

    #[test]
    fn clones_share_one_signal() {
        let (signal, other) = (WakeSignal::default(), WakeSignal::default());
        signal.clone().notify();
        assert!(was_notified(&signal) && !was_notified(&other));
        assert!(signal.is(&signal.clone()) && !signal.is(&other));
    }
}
