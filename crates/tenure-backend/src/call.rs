//! What a backend's methods return: futures that own all they need, so that the engine can move them about.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use smallvec::SmallVec;

use crate::BackendError;

/// Elements of one request, in order. A batch of one takes no allocation.
///
/// # Examples
/// ```
/// use tenure_backend::Batch;
///
/// let one = Batch::from_iter(["claim 1"]);
/// let many = Batch::from_iter(["claim 1", "claim 2"]);
/// assert!(!one.spilled() && many.spilled());
/// ```
pub type Batch<T> = SmallVec<[T; 1]>;

/// One request on its way to the store.
///
/// It borrows nothing: the engine polls it in place, and moves it to the watchdog if its caller goes away. It
/// does nothing until it is first polled. A backend whose answer is at hand uses [`Call::ready`], which
/// allocates nothing. If its future panics, the call ends with an error of unknown effect.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::Call;
/// use tokio::sync::oneshot;
///
/// let (store, reply) = oneshot::channel();
/// let mut call = Call::new(async { Ok(reply.await.expect("the store answers")) });
/// // Its caller polls it in place, and gives up before the answer is there.
/// assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
/// // It is moved, not dropped: somebody else learns what became of it.
/// let finishing = tokio::spawn(call);
/// store.send("granted").expect("somebody listens");
/// assert!(matches!(finishing.await, Ok(Ok("granted"))));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct Call<T>(Inner<Result<T, BackendError>>);

/// One request for a batch, answered element by element, in order: failure is an element's own.
///
/// If its future panics, the answer is empty. A missing element has an unknown effect.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Batch, BatchCall, Effect, Fault, Instant, RenewReply};
///
/// let alive = RenewReply::Alive { held_from: Instant::from_nanos(1), lease: Duration::from_secs(30) };
/// let down = BackendError::new(Fault::Unavailable, Effect::Unknown, "shard 2 did not answer");
/// let each = BatchCall::new(async { Batch::from_iter([alive, RenewReply::Unknown(down)]) });
/// // One answer for each claim: the second shard's silence says nothing of the first claim.
/// assert!(matches!(each.await[..], [RenewReply::Alive { .. }, RenewReply::Unknown(_)]));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct BatchCall<T>(Inner<Batch<T>>);

enum Inner<T> {
    Ready(Option<T>),
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Inner<T> {
    /// Polls the call; `otherwise` is the answer of a future that panics.
    fn poll(&mut self, cx: &mut Context<'_>, otherwise: impl FnOnce() -> T) -> Poll<T> {
        match self {
            Inner::Ready(answer) => {
                Poll::Ready(answer.take().expect("a call is not polled after its answer"))
            }
            // Unwind safe: a future that has panicked is dropped.
            Inner::Pending(future) => catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                .unwrap_or_else(|_| {
                    *self = Inner::Ready(None);
                    Poll::Ready(otherwise())
                }),
        }
    }
}

impl<T> Call<T> {
    /// A call that is answered already. What it did is done when it is made, whether it is polled or not.
    pub fn ready(answer: Result<T, BackendError>) -> Self {
        Call(Inner::Ready(Some(answer)))
    }

    /// A call carried out by `future`.
    pub fn new(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Call(Inner::Pending(Box::pin(future)))
    }
}

impl<T> BatchCall<T> {
    /// A call that is answered already.
    pub fn ready(answers: Batch<T>) -> Self {
        BatchCall(Inner::Ready(Some(answers)))
    }

    /// A call carried out by `future`.
    pub fn new(future: impl Future<Output = Batch<T>> + Send + 'static) -> Self {
        BatchCall(Inner::Pending(Box::pin(future)))
    }

    /// Takes the answers of a call that was answered when it was made.
    ///
    /// A caller that need not wait saves a poll. A call whose answers were taken panics when it is polled, as one does that
    /// was polled to its end.
    ///
    /// # Examples
    /// ```
    /// use tenure_backend::BatchCall;
    ///
    /// let mut answered = BatchCall::ready([1, 2].into_iter().collect());
    /// assert_eq!(answered.take_ready().unwrap()[..], [1, 2]);
    /// assert!(answered.take_ready().is_none(), "they are taken once");
    /// let mut pending = BatchCall::new(async { [1].into_iter().collect() });
    /// assert!(pending.take_ready().is_none(), "it is to be polled");
    /// ```
    pub fn take_ready(&mut self) -> Option<Batch<T>> {
        match &mut self.0 {
            Inner::Ready(answers) => answers.take(),
            Inner::Pending(_) => None,
        }
    }
}

impl<T> Unpin for Call<T> {}
impl<T> Unpin for BatchCall<T> {}

impl<T> Future for Call<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx, || Err(BackendError::panicked()))
    }
}

impl<T> Future for BatchCall<T> {
    type Output = Batch<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx, Batch::new)
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call(..)")
    }
}

impl<T> fmt::Debug for BatchCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchCall(..)")
    }
}

/// Hints that a claim may stand differently than before: armed until dropped.
///
/// A hint may come early, spuriously, or never; whoever listens polls the claim after each, and without one
/// when `poll_after` has passed. When the stream ends or panics, wake-ups have ended and only polling is left.
///
/// # Examples
/// ```
/// # use std::{future::poll_fn, pin::Pin, task::{Context, Poll}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use futures_core::Stream;
/// use tenure_backend::Wakes;
/// use tokio::sync::mpsc;
///
/// struct Messages(mpsc::Receiver<()>);
///
/// impl Stream for Messages {
///     type Item = ();
///     fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
///         self.0.poll_recv(cx)
///     }
/// }
/// let (wake, messages) = mpsc::channel(1);
/// let mut wakes = Wakes::new(Messages(messages));
/// wake.try_send(()).expect("there is room for one");
/// drop(wake);
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, Some(()), "poll the claim: it may stand differently");
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, None, "nothing more will be heard: poll by the clock");
/// # }
/// ```
#[must_use = "wake-ups end when this is dropped"]
pub struct Wakes(Pin<Box<dyn Stream<Item = ()> + Send>>);

impl Wakes {
    /// Wake-ups from a stream.
    pub fn new(stream: impl Stream<Item = ()> + Send + 'static) -> Self {
        Wakes(Box::pin(stream))
    }
}

impl Stream for Wakes {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll_next(cx))).unwrap_or(Poll::Ready(None))
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wakes(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;
    use crate::{Effect, Fault};

    fn poll<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
        Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_call_that_panics_ends_with_an_error_of_unknown_effect() {
        let Poll::Ready(Err(error)) = poll(Call::<()>::new(async { panic!("a mistake") })) else {
            panic!("no answer");
        };
        assert_eq!((error.fault(), error.effect()), (Fault::Store, Effect::Unknown));
    }

    #[test]
    fn a_batch_that_panics_answers_nothing() {
        let answer = poll(BatchCall::<u32>::new(async { panic!("a mistake") }));
        assert!(matches!(answer, Poll::Ready(answers) if answers.is_empty()));
    }

    #[test]
    fn wake_ups_that_panic_have_ended() {
        struct Panics;
        impl Stream for Panics {
            type Item = ();
            fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<()>> {
                panic!("a mistake")
            }
        }
        let mut wakes = Wakes::new(Panics);
        let hint = poll(poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)));
        assert_eq!(hint, Poll::Ready(None));
    }
}
