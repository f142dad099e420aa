//! Futures that a backend's methods return. They borrow nothing, so the engine can move them between tasks.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use smallvec::SmallVec;

use crate::BackendError;

/// The elements of one call, in order. A batch of one element does not allocate.
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

/// The future of one request to the store.
///
/// The future borrows nothing, so the engine can poll it in place, and move it to a background task if its caller
/// leaves. A call of [`Call::new`] does nothing until it is first polled. A backend that knows its reply at once uses
/// [`Call::ready`], which does not allocate. If the future panics, the call ends with an error of unknown effect (B16).
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
/// // The caller polls the call in place, and gives up before the reply arrives.
/// assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
/// // The call is moved to a task, not dropped, so its outcome is not lost.
/// let task = tokio::spawn(call);
/// store.send("granted").expect("the task receives");
/// assert!(matches!(task.await, Ok(Ok("granted"))));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct Call<T>(Inner<Result<T, BackendError>>);

/// The future of a batch of requests. It yields one reply for each element, in order (B17).
///
/// If the future panics, it yields an empty batch. The effect of an element without a reply is unknown.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Batch, BatchCall, Effect, Fault, Instant, RenewReply};
///
/// let alive = RenewReply::Alive { held_from: Instant::from_nanos(1), lease: Duration::from_secs(30) };
/// let down = BackendError::new(Fault::Unavailable, Effect::Unknown, "shard 2 did not answer");
/// let call = BatchCall::new(async { Batch::from_iter([alive, RenewReply::Unknown(down)]) });
/// // One reply for each claim: the failure of the second shard does not affect the first claim.
/// assert!(matches!(call.await[..], [RenewReply::Alive { .. }, RenewReply::Unknown(_)]));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct BatchCall<T>(Inner<Batch<T>>);

enum Inner<T> {
    Ready(Option<T>),
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Inner<T> {
    /// Polls the future. If it panics, the result is `otherwise()`.
    fn poll(&mut self, cx: &mut Context<'_>, otherwise: impl FnOnce() -> T) -> Poll<T> {
        match self {
            Inner::Ready(answer) => {
                Poll::Ready(answer.take().expect("a call is not polled after its answer"))
            }
            // Unwind safe, because a future that panicked is dropped and not polled again.
            Inner::Pending(future) => catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
                .unwrap_or_else(|_| {
                    *self = Inner::Ready(None);
                    Poll::Ready(otherwise())
                }),
        }
    }
}

impl<T> Call<T> {
    /// Creates a call whose reply is known. Polling it has no effect on the store.
    pub fn ready(answer: Result<T, BackendError>) -> Self {
        Call(Inner::Ready(Some(answer)))
    }

    /// Creates a call that runs `future`.
    pub fn new(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Call(Inner::Pending(Box::pin(future)))
    }
}

impl<T> BatchCall<T> {
    /// Creates a call whose replies are known. Polling it has no effect on the store.
    pub fn ready(answers: Batch<T>) -> Self {
        BatchCall(Inner::Ready(Some(answers)))
    }

    /// Creates a call that runs `future`.
    pub fn new(future: impl Future<Output = Batch<T>> + Send + 'static) -> Self {
        BatchCall(Inner::Pending(Box::pin(future)))
    }

    /// Takes the replies of a call that [`ready`](BatchCall::ready) created, once; `None` for other calls.
    ///
    /// This saves the caller a poll. After `Some` the call panics if it is polled.
    ///
    /// # Examples
    /// ```
    /// use tenure_backend::BatchCall;
    ///
    /// let mut answered = BatchCall::ready([1, 2].into_iter().collect());
    /// assert_eq!(answered.take_ready().unwrap()[..], [1, 2]);
    /// assert!(answered.take_ready().is_none(), "the replies can be taken once");
    /// let mut pending = BatchCall::new(async { [1].into_iter().collect() });
    /// assert!(pending.take_ready().is_none(), "this call must be polled");
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

/// A stream of hints that the state of a claim may have changed. Dropping the stream ends the subscription.
///
/// A hint may come too early, without a reason, or not at all. The waiter polls its claim after each hint, and also when
/// `poll_after` has passed. After the stream has ended or panicked, the waiter only polls.
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
/// wake.try_send(()).expect("the channel is empty");
/// drop(wake);
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, Some(()), "poll the claim: its state may have changed");
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, None, "no more hints: poll after `poll_after`");
/// # }
/// ```
#[must_use = "wake-ups end when this is dropped"]
pub struct Wakes(Pin<Box<dyn Stream<Item = ()> + Send>>);

impl Wakes {
    /// Wraps a stream whose items mean "poll the claim now".
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
    fn a_batch_call_that_panics_yields_an_empty_batch() {
        let answer = poll(BatchCall::<u32>::new(async { panic!("a mistake") }));
        assert!(matches!(answer, Poll::Ready(answers) if answers.is_empty()));
    }

    #[test]
    fn wake_ups_end_when_their_stream_panics() {
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
